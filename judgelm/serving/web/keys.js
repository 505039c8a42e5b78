// Keyboard shortcuts for labelling. They are disabled while the user types in a field.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const typing = event.target.closest("textarea, select, [contenteditable], input:not([type=radio]):not([type=checkbox])");
  const on = document.querySelector("#browse-keys input");
  const presses = {
    1: "label-first", 2: "label-second", 0: "label-tie", u: "label-none", j: "step-next", k: "step-back",
  };
  const button = document.getElementById(presses[event.key]);
  const search = document.querySelector("#filter-text textarea, #filter-text input");
  if (typing || !on || !on.checked || on.offsetParent === null) return;
  if (button) { event.preventDefault(); button.click(); }
  if (event.key === "/" && search) { event.preventDefault(); search.focus(); }
});
