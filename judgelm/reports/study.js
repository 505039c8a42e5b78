"use strict";
(() => {
  const PAGE = 50;
  const FEW = 8;
  const compare = new Intl.Collator(undefined, { numeric: true }).compare;

  const prepare = (section) => {
    const table = section.querySelector("table.sortable");
    if (!table) return;
    const body = table.tBodies[0];
    const rows = Array.from(body.rows);
    const controls = section.querySelector(".controls");
    const [search, pages, status] = ["input", ".pages", "[role=status]"].map((one) => controls.querySelector(one));
    const [back, on] = pages.querySelectorAll("button");
    const heads = Array.from(table.tHead.rows[0].cells);
    const texts = new Map();
    let order = rows;
    let first = 0;

    const textOf = (row) => {
      if (!texts.has(row)) texts.set(row, row.textContent.toLowerCase());
      return texts.get(row);
    };

    const update = () => {
      const wanted = search.value.trim().toLowerCase();
      const fitting = wanted ? order.filter((row) => textOf(row).includes(wanted)) : order;
      if (first >= fitting.length) first = 0;
      const end = Math.min(first + PAGE, fitting.length);
      body.replaceChildren(...fitting.slice(first, end));
      pages.hidden = fitting.length <= PAGE;
      back.disabled = first === 0;
      on.disabled = end === fitting.length;
      const found = wanted ? `${fitting.length} of ${rows.length} rows` : `${rows.length} rows`;
      status.textContent = fitting.length > PAGE ? `${first + 1} to ${end} of ${found}` : found;
    };

    const turn = (step) => {
      first = Math.max(0, first + step * PAGE);
      update();
    };

    const sort = (place) => {
      const head = heads[place];
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const keyed = rows.map((row) => {
        const cell = row.cells[place];
        const number = cell.dataset.order === undefined ? null : Number(cell.dataset.order);
        return { row, number, text: cell.textContent, none: cell.textContent === "–" || cell.textContent === "" };
      });
      keyed.sort((a, b) => {
        if (a.none !== b.none) return a.none ? 1 : -1; // what is undefined stands last either way
        const both = a.number !== null && b.number !== null;
        const found = both ? a.number - b.number : compare(a.text, b.text);
        return down ? -found : found;
      });
      order = keyed.map((one) => one.row);
      first = 0;
      update();
    };

    heads.forEach((head, place) => {
      const button = document.createElement("button");
      button.type = "button";
      button.title = "Sort by this column";
      button.append(...head.childNodes);
      button.addEventListener("click", () => sort(place));
      head.append(button);
    });
    search.addEventListener("input", () => {
      first = 0;
      update();
    });
    back.addEventListener("click", () => turn(-1));
    on.addEventListener("click", () => turn(1));
    controls.hidden = rows.length <= FEW;
    update();
  };

  document.querySelectorAll("section.table").forEach(prepare);
})();
