const D = JSON.parse(document.getElementById("vepm-data").textContent);
const nodeCount = D.nodes.name.length;
const isGraphTask = D.task === "graph";
const byId = (id) => document.getElementById(id);
const SPLIT_NAMES = ["outside the splits", "train", "validation", "test"];

const neighbours = Array.from({ length: nodeCount }, () => []);
D.edges.source.forEach((source, edge) => {
  const target = D.edges.target[edge];
  neighbours[source].push({ node: target, edge });
  neighbours[target].push({ node: source, edge });
});

const itemOf = (node) => (isGraphTask ? D.nodes.graph[node] : node);
const className = (index) => (index >= 0 ? D.classes[index] : "unknown");
const indexOfLargest = (values) => values.indexOf(Math.max(...values));

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

/** Up to `size` nodes, breadth first from `start`. */
function ball(start, size) {
  const seen = new Set([start]);
  const queue = [start];
  for (let at = 0; at < queue.length && queue.length < size; at += 1) {
    for (const { node } of neighbours[queue[at]]) {
      if (seen.has(node)) continue;
      seen.add(node);
      queue.push(node);
      if (queue.length >= size) break;
    }
  }
  return queue;
}
