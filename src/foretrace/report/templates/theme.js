// Runs before the page is drawn, so that a remembered theme does not flash.
(() => {
  "use strict";
  const KEY = "foretrace-theme";
  const THEMES = ["system", "light", "dark"];
  let theme = "system";
  try {
    const kept = localStorage.getItem(KEY);
    if (THEMES.includes(kept)) theme = kept;
  } catch { /* a browser may refuse to remember for a file */ }
  function apply() {
    const root = document.documentElement;
    if (theme === "system") delete root.dataset.theme; else root.dataset.theme = theme;
  }
  apply();
  document.documentElement.classList.add("scripted");
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const label = () => { button.textContent = "theme: " + theme; };
    label();
    button.addEventListener("click", () => {
      theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
      try { localStorage.setItem(KEY, theme); } catch { /* as above */ }
      apply();
      label();
      document.dispatchEvent(new Event("themechange"));
    });
  });
  const changed = () => document.dispatchEvent(new Event("themechange"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  // On paper the style is light; what draws with colours of its own draws again.
  matchMedia("print").addEventListener("change", changed);
})();
