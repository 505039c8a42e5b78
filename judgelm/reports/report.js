"use strict";
(() => {
  const controls = document.getElementById("controls");
  if (!controls) return;
  const pairs = Array.from(document.querySelectorAll("details.pair"));
  const buttons = Array.from(controls.querySelectorAll("button"));
  const search = document.getElementById("search");
  const status = document.getElementById("status");
  const texts = new Map();
  let kind = "";

  const textOf = (pair) => {
    if (!texts.has(pair)) texts.set(pair, pair.textContent.toLowerCase());
    return texts.get(pair);
  };

  const update = () => {
    const wanted = search.value.trim().toLowerCase();
    let shown = 0;
    for (const pair of pairs) {
      const fits = !kind || pair.dataset.kinds.split("|").includes(kind);
      pair.hidden = !(fits && (!wanted || textOf(pair).includes(wanted)));
      if (!pair.hidden) shown += 1;
    }
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.kind === kind));
    status.textContent = `${shown} of ${pairs.length} listed pairs shown`;
  };

  for (const button of buttons) {
    button.addEventListener("click", () => {
      kind = button.dataset.kind;
      update();
    });
  }
  search.addEventListener("input", update);
  controls.hidden = false;
  update();
})();
