const wrongItems = everyItem.filter(isWrong).sort((a, b) => confidence(b) - confidence(a));
const unsureItems = leastSure.filter(isUnsure);
const oddEdges = rates.map((_, edge) => edge).sort((a, b) => rates[a] - rates[b]);
const pickItem = (item) => (isGraphTask ? showOtherGraph(item) : pickNode(item));

/** Buttons that pick the next wrong or uncertain item, or the next most surprising edge. */
function buildFinder() {
  const items = isGraphTask ? "graphs" : "nodes";
  const finder = (id, words, list, pick) => {
    let at = -1;
    const button = make("button", { type: "button", id, onclick: () => {
      at = (at + 1) % list.length;
      pick(list[at]);
    } }, `${words} (${list.length.toLocaleString("en")})`);
    button.disabled = !list.length;
    return button;
  };
  const buttons = [];
  if (D.items.prediction && D.items.label) buttons.push(finder("find-wrong", `Next wrong ${items.slice(0, -1)}`, wrongItems, pickItem));
  if (D.items.probabilities) buttons.push(finder("find-unsure", `Next uncertain ${items.slice(0, -1)}`, unsureItems, pickItem));
  if (!isGraphTask) buttons.push(finder("find-edge", "Next surprising edge", oddEdges.slice(0, 50), (edge) => {
    const end = D.edges.source[edge];
    if (!cy.getElementById(`e${edge}`).length) startFrom(end);
    pickEdge(edge);
  }));
  byId("find").append(...buttons);
}

function outcome(item) {
  const words = [isWrong(item) ? "wrong" : D.items.label && D.items.label[item] >= 0 ? "right" : ""];
  if (isUnsure(item)) words.push("uncertain");
  return words.filter(Boolean).join(", ");
}

function buildPredictions() {
  const root = byId("prediction-table");
  if (!root) return;
  const nameOf = (item) => (isGraphTask ? D.items.name : D.nodes.name)[item];
  const columns = [
    { title: isGraphTask ? "Graph" : "Node", value: nameOf,
      cell: (item) => make("button", { type: "button", class: "name" }, nameOf(item)) },
    { title: "Prediction", value: (item) => className(D.items.prediction[item]) },
    { title: "Probability (%)", value: confidence, cell: (item) => confidence(item).toFixed(1) },
    { title: "Split", value: (item) => SPLIT_NAMES[D.items.split[item]] },
  ];
  if (D.items.label) {
    columns.splice(1, 0, { title: "Label", value: (item) => className(D.items.label[item]) });
    columns.push({ title: "Outcome", value: outcome });
  }
  if (!isGraphTask) columns.push({ title: "Main community", value: (item) => D.nodes.main[item] });
  const order = columns.findIndex(({ title }) => title.startsWith("Probability"));
  buildTable(root, columns, everyItem, { order, pick: (item) => {
    pickItem(item);
    byId("graph").scrollIntoView();
  } });
}
