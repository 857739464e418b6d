// Starts the charts, saves them, and reads the page again while a run is going.
(() => {
  "use strict";
  const { colour, optionOf, reduced } = fedlamaCharts;
  const page = JSON.parse(document.getElementById("charts").textContent);

  // What the reader chose to see, for each group of runs.
  const choices = new Map();
  const choiceOf = (group) => {
    if (!choices.has(group)) choices.set(group, { hidden: new Set(), full: false, kernels: false });
    return choices.get(group);
  };
  const asSeen = (chart) => reduced(chart, choiceOf(chart.group));

  // Saving: the same chart at a fixed size, with its title and a legend of its own.
  const picture = (whole) => {
    const chart = asSeen(whole);
    const option = optionOf(chart);
    option.title = { text: chart.title, left: 8, top: 6, textStyle: { color: colour("ink"), fontSize: 16 } };
    const names = chart.kind === "tiles" ? [] : chart.series.map((series) => series.name);
    option.legend = { data: names, type: "plain", left: 8, top: 32, textStyle: { color: colour("ink") } };
    const lines = Math.ceil(names.join("      ").length / 110);
    for (const grid of [option.grid].flat()) grid.top += 34 + 24 * lines;
    const made = echarts.init(null, null, { renderer: "svg", ssr: true, width: 900, height: Math.max(chart.height, 420) + 40 + 24 * lines });
    made.setOption(option);
    const text = made.renderToSVGString();
    made.dispose();
    return text;
  };
  const download = (blob, name) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
  const saveSvg = (chart) => download(new Blob([picture(chart)], { type: "image/svg+xml" }), `${chart.id}.svg`);
  const savePng = (chart) => {
    const image = new Image();
    image.onload = () => {
      const canvas = document.createElement("canvas");
      canvas.width = 2 * image.width;
      canvas.height = 2 * image.height;
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob((blob) => download(blob, `${chart.id}.png`));
    };
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(picture(chart))}`;
  };
  const quoted = (value) => {
    const text = value === null ? "" : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const csv = (chart) => [chart.columns, ...chart.rows].map((row) => `${row.map(quoted).join(",")}\r\n`).join("");
  const saveCsv = (chart) => download(new Blob([csv(chart)], { type: "text/csv;charset=utf-8" }), `${chart.id}.csv`);

  const SAVE = { svg: saveSvg, png: savePng, csv: saveCsv };
  const start = (chart) => {
    const figure = document.getElementById(`chart-${chart.id}`);
    const place = figure.querySelector(".drawing");
    place.style.height = `${chart.height}px`;
    const drawn = echarts.init(place, null, { renderer: "svg" });
    const draw = () => {
      const seen = asSeen(chart);
      figure.hidden = choiceOf(chart.group).hidden.has(chart.setting);
      place.style.height = `${seen.height}px`;
      drawn.setOption(optionOf(seen), true);
      if (place.clientWidth) drawn.resize();
    };
    draw();
    for (const button of figure.querySelectorAll("[data-save]")) {
      button.addEventListener("click", () => SAVE[button.dataset.save](chart));
    }
    // A tooltip goes by itself with the mouse, but a finger leaves it behind: a tap elsewhere takes it away.
    addEventListener("pointerdown", ({ target }) => place.contains(target) || drawn.dispatchAction({ type: "hideTip" }));
    new ResizeObserver(() => place.clientWidth && drawn.resize()).observe(place);
    return { group: chart.group, draw };
  };
  // One legend for all charts of a group, and switches for those that have more to show.
  const press = (button, group, choose) => {
    const pressed = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(pressed));
    choose(choiceOf(group), pressed);
    started.filter((chart) => chart.group === group).forEach(({ draw }) => draw());
  };
  const listen = (selector, groupOf, choose) => {
    for (const button of document.querySelectorAll(selector)) {
      button.addEventListener("click", () => press(button, Number(groupOf(button)), (choice, pressed) => choose(choice, pressed, button)));
    }
  };
  const listenToAll = () => {
    listen("[data-setting]", (button) => button.closest("[data-group]").dataset.group, (choice, pressed, button) => {
      const name = page.settings[button.closest("[data-group]").dataset.group][Number(button.dataset.setting)];
      if (pressed) choice.hidden.delete(name);
      else choice.hidden.add(name);
    });
    listen("[data-range]", (button) => button.dataset.range, (choice, pressed) => (choice.full = pressed));
    listen("[data-kernels]", (button) => button.dataset.kernels, (choice, pressed) => (choice.kernels = pressed));
  };
  // A table that is wider than its box says so.
  const tellOfMore = (box) => {
    const look = () => box.classList.toggle("more", box.scrollLeft + box.clientWidth < box.scrollWidth - 2);
    box.addEventListener("scroll", look, { passive: true });
    new ResizeObserver(look).observe(box);
    look();
  };

  // While a run is going the page reads itself again, but not under a reader's finger.
  const refresh = (seconds) => {
    let touched = 0;
    for (const event of ["pointermove", "pointerdown", "keydown", "wheel"]) addEventListener(event, () => (touched = Date.now()), { passive: true });
    setInterval(() => Date.now() - touched > 1000 * seconds && location.reload(), 1000 * seconds);
  };

  document.documentElement.classList.add("live");
  const started = page.charts.map(start);
  listenToAll();
  document.querySelectorAll(".box").forEach(tellOfMore);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => started.forEach(({ draw }) => draw()));
  if (page.refresh) refresh(page.refresh);
  globalThis.fedlamaReport = { charts: page.charts, csv, picture }; // for the console, and for tests
})();
