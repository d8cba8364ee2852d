// What if: what the session would have cost with each working window of `lamina run`.
import { get } from "./api.js";
import { atLeast, h, money, number, replace, share, tokens } from "./dom.js";

export async function drawAlternatives({ body, address, isCurrent }) {
  const { saving, paid } = await get(`alternatives/${address.session}`);
  if (!isCurrent()) return;
  if (!saving) {
    replace(body, h("h2", {}, "What if?"), h("p", { class: "empty" }, "The price of this session is not known: its answers did not report their tokens, or its model has no price."));
    return;
  }
  const cell = (words) => h("td", { class: "num" }, words);
  const paidRow = paid && h("tr", { class: "reported" }, h("th", { scope: "row" }, "as it ran, under lamina"), h("td", {}), cell(""), cell(atLeast(paid.dollars, paid.is_at_least)), cell(""), cell(number(paid.cuts)));
  const makeRow = (row) =>
    h(
      "tr",
      { class: row.is_recommended ? "recommended" : null },
      h("th", { scope: "row" }, h("code", {}, row.flag), row.is_recommended ? h("span", { class: "small" }, " recommended") : null),
      h("td", { class: "bar-cell" }, h("progress", { max: saving.rows[0].dollars || 1, value: row.dollars, "aria-label": `cost with ${row.flag}` })),
      [row.working === null ? "all" : tokens(row.working), money(row.dollars), share(row.saved), number(row.cuts)].map(cell),
    );
  const heads = ["in sight", "cost", "saved", "cuts"].map((head) => h("th", { scope: "col", class: "num" }, head));
  replace(
    body,
    h("h2", {}, "This session with each working window"),
    h("p", { class: "lead" }, `${paid ? "Without lamina everything would have been in sight" : "As it ran, everything was in sight"}: that is the first row. The others are simulated from sizes and pauses, as shares of it.`),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Settings of lamina run" }, h("table", { class: "alternatives", id: "alternatives" }, h("thead", {}, h("tr", {}, h("td", {}), h("td", {}), heads)), h("tbody", {}, saving.rows.map(makeRow), paidRow))),
    h("p", {}, h("code", {}, saving.command)),
  );
}
