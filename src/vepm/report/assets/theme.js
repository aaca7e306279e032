const themeButton = byId("theme");
const systemIsDark = window.matchMedia("(prefers-color-scheme: dark)");
const themeListeners = [];

const isDark = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : systemIsDark.matches;
};

function themeChanged() {
  themeButton.setAttribute("aria-pressed", String(isDark()));
  themeButton.textContent = isDark() ? "Light" : "Dark";
  themeListeners.forEach((listener) => listener());
}

themeButton.addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  themeChanged();
});
systemIsDark.addEventListener("change", themeChanged);
// Paper is white: what is painted, not styled, must follow.
window.matchMedia("print").addEventListener("change", () => themeListeners.forEach((listener) => listener()));
themeChanged();

const cssColour = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue(name).trim();
