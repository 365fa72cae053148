(() => {
  "use strict";
  const tip = document.getElementById("tip");
  const hide = () => { tip.style.opacity = 0; };
  const show = (text, x, y) => {
    tip.textContent = text;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(6, Math.min(x + 14, innerWidth - box.width - 6)) + "px";
    tip.style.top = (y + 18 + box.height > innerHeight ? y - box.height - 10 : y + 18) + "px";
    tip.style.opacity = 1;
  };
  document.addEventListener("pointermove", (event) => {
    const about = event.target.closest && event.target.closest("[data-tip]");
    if (about) show(about.dataset.tip, event.clientX, event.clientY); else hide();
  });
  document.addEventListener("pointerdown", (event) => {
    const about = event.target.closest("[data-tip]");
    if (about) show(about.dataset.tip, event.clientX, event.clientY); else hide();
  });
  document.addEventListener("scroll", hide, { passive: true });
  for (const button of document.querySelectorAll(".legend button")) {
    button.addEventListener("click", () => {
      const shown = button.getAttribute("aria-pressed") === "false";
      button.setAttribute("aria-pressed", String(shown));
      for (const series of button.closest("figure").querySelectorAll(`[data-series="${button.dataset.toggle}"]`)) {
        series.style.display = shown ? "" : "none";
      }
    });
  }
})();
