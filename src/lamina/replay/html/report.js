"use strict";
(() => {
  const root = document.documentElement;
  const theme = document.getElementById("theme");
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const dark = getComputedStyle(root).colorScheme.includes("dark");
    root.dataset.theme = dark ? "light" : "dark";
  });

  const figure = (row, at) => {
    const cell = row.cells[at];
    const given = cell.dataset.value;
    const number = given === undefined ? NaN : Number(given);
    return given === undefined || given === "" || Number.isNaN(number) ? cell.textContent : number;
  };
  const compare = (one, two) => {
    if (typeof one === typeof two) return typeof one === "number" ? one - two : one.localeCompare(two);
    return typeof one === "number" ? -1 : 1;
  };
  const sort = (table, head, at) => {
    const down = head.getAttribute("aria-sort") === "descending" ? false : head.classList.contains("n") || head.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...table.tBodies[0].rows];
    rows.sort((one, two) => (down ? -1 : 1) * compare(figure(one, at), figure(two, at)));
    table.tBodies[0].append(...rows);
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((head, at) => {
      const button = document.createElement("button");
      button.type = "button";
      button.title = `sort by ${head.textContent}`;
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => sort(table, head, at));
    });
  }
})();
