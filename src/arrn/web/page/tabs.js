/** The tabs: one panel at a time, by mouse or by the arrow keys. */

import { byId } from "./elements.js";

/** Makes the tabs work; `changed` is called after another panel is shown. */
export function openTabs(changed) {
  const tabs = [...document.querySelectorAll("[role=tab]")];
  const choose = (chosen) => {
    for (const tab of tabs) {
      const selected = tab === chosen;
      tab.setAttribute("aria-selected", String(selected));
      tab.tabIndex = selected ? 0 : -1;
      byId(tab.getAttribute("aria-controls")).hidden = !selected;
    }
    changed();
  };
  tabs.forEach((tab, place) => {
    tab.addEventListener("click", () => choose(tab));
    tab.addEventListener("keydown", (event) => {
      const moves = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: -1 };
      if (!(event.key in moves)) return;
      event.preventDefault();
      const next = tabs.at(moves[event.key] % tabs.length);
      choose(next);
      next.focus();
    });
  });
}
