/** Rows of numbers from Base64: each has the upper two bytes of a 32-bit float (bfloat16). */
function unpack(text, width) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const numbers = new Float32Array(Uint32Array.from(new Uint16Array(bytes.buffer), (upper) => upper << 16).buffer);
  return Array.from({ length: numbers.length / width }, (_, row) => Array.from(numbers.subarray(row * width, (row + 1) * width)));
}

D.nodes.z = unpack(D.nodes.z, D.activation.length);
const nodeCount = D.nodes.name.length;
const isGraphTask = D.task === "graph";
const SPLIT_NAMES = ["outside the splits", "train", "validation", "test"];

const neighbours = Array.from({ length: nodeCount }, () => []);
D.edges.source.forEach((source, edge) => {
  const target = D.edges.target[edge];
  neighbours[source].push({ node: target, edge });
  neighbours[target].push({ node: source, edge });
});

const itemOf = (node) => (isGraphTask ? D.nodes.graph[node] : node);
const className = (index) => (index >= 0 ? D.classes[index] : "unknown");
const nickname = (k) => (D.nicknames[k] ? make("small", {}, D.nicknames[k]) : null);
const indexOfLargest = (values) => values.indexOf(Math.max(...values));

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

/** What the model makes of an edge: each community's part of its rate, and its probability. */
const rateParts = (edge) => {
  const one = D.nodes.z[D.edges.source[edge]];
  const other = D.nodes.z[D.edges.target[edge]];
  return D.activation.map((weight, c) => weight * one[c] * other[c]);
};
const rates = D.edges.source.map((_, edge) => rateParts(edge).reduce((sum, part) => sum + part, 0));
const sortedRates = Float64Array.from(rates).sort();
const probability = (edge) => -Math.expm1(-rates[edge]);

/** Percentage of the edges on this page that the model expected more than this one. */
function surprise(edge) {
  let low = 0;
  let high = sortedRates.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sortedRates[middle] <= rates[edge]) low = middle + 1; else high = middle;
  }
  return (100 * (sortedRates.length - low)) / sortedRates.length;
}

const confidence = (item) => (D.items.probabilities ? D.items.probabilities[item][0][1] : 100);
const isWrong = (item) => Boolean(D.items.label && D.items.prediction)
  && D.items.label[item] >= 0 && D.items.label[item] !== D.items.prediction[item];
const isUnsure = (item) => confidence(item) < D.unsure;
const everyItem = D.items.split.map((_, item) => item);
const leastSure = [...everyItem].sort((a, b) => confidence(a) - confidence(b));

/** A picture from one hexadecimal digit a pixel. */
function paint(canvas, image) {
  const [rows, columns] = D.nodes.grid;
  canvas.height = rows;
  canvas.width = columns;
  const context = canvas.getContext("2d");
  [...image].forEach((level, place) => {
    const grey = 255 - 17 * parseInt(level, 16);
    context.fillStyle = `rgb(${grey},${grey},${grey})`;
    context.fillRect(place % columns, Math.floor(place / columns), 1, 1);
  });
  return canvas;
}

const picture = (node) => (D.nodes.image
  ? paint(make("canvas", { class: "thumb", role: "img", "aria-label": "Its features as a picture" }), D.nodes.image[node])
  : null);
