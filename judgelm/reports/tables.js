"use strict";
(() => {
  const PAGE = 50;
  const FEW = 8;
  const compare = new Intl.Collator(undefined, { numeric: true }).compare;

  // An item is a row, or in a grouped table a body whose first row has the cells for the headings.
  const prepare = (table) => {
    const controls = table.closest("section").querySelector(".controls");
    const grouped = table.classList.contains("grouped");
    const place = grouped ? table : table.tBodies[0];
    const items = Array.from(grouped ? table.tBodies : place.rows);
    const [search, pages, status] = ["input", ".pages", "[role=status]"].map((one) => controls.querySelector(one));
    const [back, on] = pages.querySelectorAll("button");
    const kinds = Array.from(controls.querySelectorAll("[data-kind]"));
    const heads = Array.from(table.tHead.rows[0].cells);
    const texts = new Map();
    let order = items;
    let kind = "";
    let first = 0;

    const textOf = (item) => {
      if (!texts.has(item)) texts.set(item, item.textContent.toLowerCase());
      return texts.get(item);
    };

    const update = () => {
      const wanted = search.value.trim().toLowerCase();
      const ofKind = kind ? order.filter((item) => item.dataset.kinds.split("|").includes(kind)) : order;
      const fitting = wanted ? ofKind.filter((item) => textOf(item).includes(wanted)) : ofKind;
      if (first >= fitting.length) first = 0;
      const end = Math.min(first + PAGE, fitting.length);
      for (const item of items) item.remove();
      place.append(...fitting.slice(first, end));
      pages.hidden = fitting.length <= PAGE;
      back.disabled = first === 0;
      on.disabled = end === fitting.length;
      for (const button of kinds) button.setAttribute("aria-pressed", String(button.dataset.kind === kind));
      const all = `${items.length} ${table.dataset.unit}`;
      const found = kind || wanted ? `${fitting.length} of ${all}` : all;
      status.textContent = fitting.length > PAGE ? `${first + 1} to ${end} of ${found}` : found;
    };

    const restart = () => {
      first = 0;
      update();
    };

    const turn = (step) => {
      first = Math.max(0, first + step * PAGE);
      update();
    };

    const keyOf = (item, column) => {
      const cell = (grouped ? item.rows[0] : item).cells[column];
      const number = cell.dataset.order === undefined ? null : Number(cell.dataset.order);
      return { item, number, text: cell.textContent, none: cell.textContent === "–" || cell.textContent === "" };
    };

    // Ascending, descending, then the original order.
    const sort = (column) => {
      const way = { ascending: "descending", descending: null }[heads[column].getAttribute("aria-sort")];
      for (const head of heads) head.removeAttribute("aria-sort");
      if (way === null) {
        order = items;
      } else {
        heads[column].setAttribute("aria-sort", way ?? "ascending");
        const keyed = items.map((item) => keyOf(item, column));
        keyed.sort((a, b) => {
          if (a.none !== b.none) return a.none ? 1 : -1; // undefined values are always last
          const both = a.number !== null && b.number !== null;
          const found = both ? a.number - b.number : compare(a.text, b.text);
          return way === "descending" ? -found : found;
        });
        order = keyed.map((one) => one.item);
      }
      restart();
    };

    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.title = "Sort by this column";
      button.append(...head.childNodes);
      button.addEventListener("click", () => sort(column));
      head.append(button);
    });
    for (const button of kinds) {
      button.addEventListener("click", () => {
        kind = button.dataset.kind;
        restart();
      });
    }
    search.addEventListener("input", restart);
    back.addEventListener("click", () => turn(-1));
    on.addEventListener("click", () => turn(1));
    controls.hidden = items.length <= FEW && kinds.length === 0;
    update();
  };

  document.querySelectorAll("table.sortable").forEach(prepare);
})();
