// Tables of answers are sorted by the column whose head is pressed; once more turns the order.

const inOrder = new Intl.Collator("en", { numeric: true }).compare;

function sortBy(table, head) {
  const order = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
  const turn = order === "ascending" ? 1 : -1;
  const rows = [...table.tBodies[0].rows];
  const text = (row) => row.cells[head.cellIndex].textContent;
  table.tBodies[0].replaceChildren(...rows.sort((a, b) => turn * inOrder(text(a), text(b))));
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", order);
}

for (const table of document.querySelectorAll("table.sortable")) {
  for (const head of table.tHead.rows[0].cells) {
    const button = make("button", { type: "button", class: "sort" }, head.textContent);
    button.addEventListener("click", () => sortBy(table, head));
    head.replaceChildren(button);
  }
}
