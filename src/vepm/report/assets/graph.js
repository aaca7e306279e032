const DETAILED_EDGES = 2500;
const UNKNOWN_COLOUR = "#9AA3AD";
const state = {
  colour: "community",
  picked: null,
  only: new Set(),
  threshold: 0,
  start: D.start,
  size: 0,
  graph: leastSure[0],
};

const colourModes = [["community", "main community"]];
if (D.communities.length <= 16) colourModes.push(["split", "all communities (pie)"]);
if (!isGraphTask && D.items.label) colourModes.unshift(["label", "label"]);
if (!isGraphTask && D.items.prediction) colourModes.splice(1, 0, ["prediction", "prediction"]);
if (!isGraphTask && D.items.prediction && D.items.label) {
  colourModes.push(["outcome", "right or wrong"]);
}
state.colour = colourModes[0][0];

const OUTCOMES = [["right", "#0B7A75"], ["wrong", "#C2410C"], ["unknown", UNKNOWN_COLOUR]];

function categoryOf(node) {
  if (state.colour === "label") return D.items.label[node];
  if (state.colour === "prediction") return D.items.prediction[node];
  if (state.colour === "outcome") {
    if (D.items.label[node] < 0) return 2;
    return D.items.label[node] === D.items.prediction[node] ? 0 : 1;
  }
  return D.nodes.main[node];
}

function colourOf(node) {
  const category = categoryOf(node);
  if (category < 0) return UNKNOWN_COLOUR;
  if (state.colour === "outcome") return OUTCOMES[category][1];
  const byClass = state.colour === "label" || state.colour === "prediction";
  return (byClass ? D.classColours : D.colours)[category];
}

/** Colours and stops that paint an edge as its split; slivers under 4 % are left out. */
function gradient(edge) {
  const parts = D.edges.share[edge].map((share, k) => [share, k]).filter(([share]) => share >= 4);
  const total = parts.reduce((sum, [share]) => sum + share, 0) || 1;
  const colours = [];
  const stops = [];
  let reached = 0;
  for (const [share, k] of parts) {
    colours.push(D.colours[k], D.colours[k]);
    stops.push(`${(100 * reached) / total}%`, `${(100 * (reached + share)) / total}%`);
    reached += share;
  }
  return { colours, stops };
}

const mainOfEdge = (edge) => indexOfLargest(D.edges.share[edge]);

function shareShown(edge) {
  const shares = D.edges.share[edge];
  if (!state.only.size) return Math.max(...shares);
  return [...state.only].reduce((sum, k) => sum + shares[k], 0);
}

function edgePasses(edge) {
  if (shareShown(edge) < state.threshold) return false;
  return !state.only.size || state.only.has(mainOfEdge(edge)) || shareShown(edge) >= 25;
}

const nodeSize = (node) =>
  (cy.nodes().length > 800 ? 2 : 1) * (12 + 5 * Math.sqrt(Math.min(neighbours[node].length, 40)));

/** A length that stays the same on the screen, however far the picture is zoomed. */
const onScreen = (length) => () => length / cy.zoom();

function styleSheet(detailed) {
  const pies = {};
  if (state.colour === "split") {
    pies["pie-size"] = "88%";
    D.colours.forEach((colour, k) => {
      pies[`pie-${k + 1}-background-color`] = colour;
      pies[`pie-${k + 1}-background-size`] = (e) => D.nodes.part[e.data("node")][k];
    });
  }
  const split = detailed
    ? {
        "line-fill": "linear-gradient",
        "line-gradient-stop-colors": (e) => gradient(e.data("edge")).colours,
        "line-gradient-stop-positions": (e) => gradient(e.data("edge")).stops,
      }
    : {};
  return [
    { selector: "node", style: {
      width: (e) => nodeSize(e.data("node")), height: (e) => nodeSize(e.data("node")),
      "background-color": (e) => colourOf(e.data("node")),
      "border-width": 1.5, "border-color": cssColour("--paper"),
      "font-family": "system-ui, sans-serif", color: cssColour("--ink"),
      "text-outline-color": cssColour("--card"), "text-outline-width": onScreen(2.5), "text-valign": "top",
      "text-margin-y": onScreen(-3), ...pies } },
    { selector: "edge", style: {
      width: (e) => 1 + shareShown(e.data("edge")) / 32,
      opacity: (e) => 0.35 + shareShown(e.data("edge")) / 190,
      "curve-style": "haystack", "haystack-radius": 0,
      "line-color": (e) => D.colours[mainOfEdge(e.data("edge"))], ...split } },
    { selector: "edge.off", style: { display: "none" } },
    { selector: "node.off", style: { opacity: 0.13 } },
    { selector: "node.near", style: { label: (e) => D.nodes.name[e.data("node")], "font-size": onScreen(11), "z-index": 8,
      "text-valign": "bottom", "text-margin-y": onScreen(3) } },
    { selector: "edge.near", style: { opacity: 1, width: 4.5 } },
    { selector: "node.picked", style: {
      label: (e) => D.nodes.name[e.data("node")], "font-size": onScreen(14), "font-weight": 600, "z-index": 9,
      "border-width": 4, "border-color": cssColour("--ink"), opacity: 1 } },
    { selector: "edge.picked", style: { opacity: 1, width: 8 } },
  ];
}

const cy = cytoscape({
  container: byId("canvas"),
  style: [],
  minZoom: 0.03,
  maxZoom: 6,
  boxSelectionEnabled: false,
  autounselectify: true,
  hideEdgesOnViewport: nodeCount > 1500,
  textureOnViewport: false,
  userZoomingEnabled: false,
});

cy.on("zoom", () => cy.nodes(".near, .picked").updateStyle());

function nodesInView() {
  if (isGraphTask) {
    return D.nodes.graph.flatMap((graph, node) => (graph === state.graph ? [node] : []));
  }
  return state.size >= nodeCount ? D.nodes.name.map((_, node) => node) : ball(state.start, state.size);
}

const SCALE = nodeCount > 800 && !isGraphTask ? 46 : 78;
// Smaller graphs come with good positions; larger ones are arranged in Python as a whole.
const ARRANGED_HERE = { above: 60, upTo: 400 };

function redraw() {
  const nodes = nodesInView();
  const inView = new Set(nodes);
  const elements = nodes.map((node) => ({
    group: "nodes",
    data: { id: `n${node}`, node },
    position: { x: SCALE * D.nodes.x[node], y: SCALE * D.nodes.y[node] },
  }));
  D.edges.source.forEach((source, edge) => {
    const target = D.edges.target[edge];
    if (!inView.has(source) || !inView.has(target)) return;
    elements.push({ group: "edges", data: { id: `e${edge}`, edge, source: `n${source}`, target: `n${target}` } });
  });
  cy.elements().remove();
  cy.add(elements);
  restyle();
  filterView();
  const whole = isGraphTask ? nodes.length : nodeCount;
  cy.layout(whole > ARRANGED_HERE.above && nodes.length <= ARRANGED_HERE.upTo
    ? { name: "cose", animate: false, randomize: false, numIter: Math.min(350, Math.round(20000 / nodes.length)), idealEdgeLength: () => 46,
        nodeRepulsion: () => 9000, nodeOverlap: 14, gravity: 0.6, padding: 24 }
    : { name: "preset", padding: 24 }).run();
  drawParts();
}

const PICTURE = 150;

/** What is in view once for each community, an edge as strong as its share. */
function drawParts() {
  const box = cy.elements().boundingBox();
  const scale = (PICTURE - 12) / Math.max(box.w, box.h, 1);
  const ratio = window.devicePixelRatio || 1;
  const at = (e) => [PICTURE / 2 + scale * (e.position().x - (box.x1 + box.x2) / 2),
    PICTURE / 2 + scale * (e.position().y - (box.y1 + box.y2) / 2)];
  const points = new Map(cy.nodes().map((e) => [e.data("node"), at(e)]));
  const inView = cy.edges().map((e) => e.data("edge"));
  byId("part-pictures").replaceChildren(...D.communities.map((name, k) => {
    const canvas = make("canvas", { width: PICTURE * ratio, height: PICTURE * ratio });
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.strokeStyle = D.colours[k];
    inView.forEach((edge) => {
      const share = D.edges.share[edge][k];
      if (share < 3) return;
      context.globalAlpha = share / 100;
      context.lineWidth = 0.4 + share / 60;
      context.beginPath();
      context.moveTo(...points.get(D.edges.source[edge]));
      context.lineTo(...points.get(D.edges.target[edge]));
      context.stroke();
    });
    context.globalAlpha = 1;
    context.fillStyle = cssColour("--muted");
    const size = points.size > 300 ? 0.8 : 1.6;
    points.forEach(([x, y]) => context.fillRect(x - size / 2, y - size / 2, size, size));
    return make("figure", { "data-part": k }, canvas, make("figcaption", { title: D.nicknames[k] }, swatch(D.colours[k]), name, nickname(k)));
  }));
}

function restyle() {
  cy.style(styleSheet(cy.edges().length <= DETAILED_EDGES));
}

function filterView() {
  cy.batch(() => {
    cy.edges().forEach((e) => { e.toggleClass("off", !edgePasses(e.data("edge"))); });
    cy.nodes().forEach((e) => {
      const wanted = !state.only.size || state.only.has(D.nodes.main[e.data("node")])
        || e.connectedEdges().some((edge) => !edge.hasClass("off"));
      e.toggleClass("off", !wanted);
    });
  });
}

function highlight(element) {
  cy.batch(() => {
    cy.elements().removeClass("picked near");
    if (element && element.length) {
      element.addClass("picked");
      if (element.isNode()) {
        element.connectedEdges().addClass("near");
        if (element.degree() <= 12) element.neighborhood("node").addClass("near");
      }
    }
  });
}
