const D = JSON.parse(document.getElementById("vepm-data").textContent);
const byId = (id) => document.getElementById(id);

/** An element with attributes and children; text is never parsed as markup. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "style") Object.entries(value).forEach(([k, v]) => element.style.setProperty(k, v));
    else if (name === "onclick") element.addEventListener("click", value);
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

const swatch = (colour) =>
  make("span", { class: "swatch", "aria-hidden": "true", style: { background: colour } });
