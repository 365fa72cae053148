//! Records of the instrument and of its machine.

mod certificate;
mod check;
mod machine;

pub use certificate::{CarriedCertificate, Certificate, Machine, Program, VALID_DAYS};
pub use check::Check;
pub use machine::MachineUse;
