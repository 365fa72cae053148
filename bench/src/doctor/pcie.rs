//! Links of devices on the PCI bus, compared with their maximum. In: a device's folder in /sys. Out: a finding.

use super::finding::Finding;
use super::tree::Tree;

/// Parses a speed such as `8.0 GT/s PCIe`.
fn speed(text: &str) -> Option<f64> {
    text.split(' ').next()?.parse().ok()
}

/// Checks the link of one device. For a device that lowers its speed while idle, only the width is checked.
pub(super) fn link(tree: &Tree, about: &str, folder: &str, slows_when_idle: bool) -> Finding {
    let text = |name: &str| tree.text(format!("{folder}/{name}"));
    let about = format!("PCIe link of {about}");
    let number = |name: &str| text(name).as_deref().and_then(speed).filter(|number| *number > 0.0);
    let speeds = number("current_link_speed").zip(number("max_link_speed"));
    let widths = number("current_link_width").zip(number("max_link_width"));
    let (Some((speed, most_speed)), Some((width, most_width))) = (speeds, widths) else {
        return Finding::unknown(about, "not to be seen: a virtual device, or one of another bus");
    };
    let found = format!("{speed} GT/s x{width}, of {most_speed} GT/s x{most_width}");
    let share = if slows_when_idle {
        width / most_width
    } else {
        speed * width / (most_speed * most_width)
    };
    Finding::warning(about, found)
        .effect(format!("at most {:.0} % of what the device could move", share * 100.0))
        .change(
            "another slot, riser or BIOS setting; a link that trained lower after errors comes back with a power cycle",
        )
        .fine_if(share >= 1.0)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn a_link_below_its_best_is_told_with_its_share() {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree::at(folder.path());
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        assert_eq!(link(&tree, "nvme0", ".", false).level, Level::Unknown);
        write("current_link_speed", "8.0 GT/s PCIe\n");
        write("max_link_speed", "16.0 GT/s PCIe\n");
        write("current_link_width", "2\n");
        write("max_link_width", "4\n");
        let finding = link(&tree, "nvme0", ".", false);
        assert_eq!(finding.level, Level::Warning);
        assert!(finding.effect.unwrap().contains("25 %"));
        assert!(link(&tree, "gpu", ".", true).effect.unwrap().contains("50 %"));
        write("current_link_width", "4\n");
        assert_eq!(link(&tree, "gpu", ".", true).level, Level::Fine);
        write("current_link_speed", "Unknown\n");
        assert_eq!(link(&tree, "nvme0", ".", false).level, Level::Unknown);
    }
}
