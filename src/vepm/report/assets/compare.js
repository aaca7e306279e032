if (byId("disagreement-table")) {
  const columns = D.columns.map((title, c) => ({ title, value: (row) => row[c] }));
  buildTable(byId("disagreement-table"), columns, D.rows);
}
