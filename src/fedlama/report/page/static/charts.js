// Draws the page's charts from the tables in #charts, which are also what "CSV" hands out.
// A table's first column names the series; x, y, low and high are columns by their place. See charts.py.
const fedlamaCharts = (() => {
  "use strict";
  const style = () => getComputedStyle(document.documentElement);
  const colour = (name) => style().getPropertyValue(`--${name}`).trim();
  const ownColour = ({ colour: own }) => colour(own === "muted" ? own : `c${own}`);
  const DASHES = ["solid", [8, 3], [2, 3]];
  const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Liberation Sans', sans-serif";

  // Numbers as people read them; the CSV has them in full.
  const three = (value) => Number(value.toPrecision(3)).toString();
  const scaled = (value, units) => {
    const [unit, size] = units.find(([, least]) => Math.abs(value) >= least) || units[units.length - 1];
    return `${three(value / size)} ${unit}`;
  };
  const time = (seconds) => {
    if (seconds < 60) return scaled(seconds, [["s", 1], ["ms", 0.001]]);
    if (seconds < 3600) {
      const whole = Math.round(seconds);
      const rest = whole % 60;
      return `${(whole - rest) / 60} min${rest ? ` ${rest} s` : ""}`;
    }
    return seconds < 172800 ? `${three(seconds / 3600)} h` : `${three(seconds / 86400)} days`;
  };
  const FORMATS = {
    text: (value) => String(value),
    number: (value) => Number(value.toPrecision(4)).toString(),
    percent: (value) => `${(100 * value).toFixed(2)} %`,
    bytes: (value) => scaled(value, [["GB", 1e9], ["MB", 1e6], ["kB", 1e3], ["B", 1]]),
    bandwidth: (value) => scaled(value, [["Gbit/s", 1e9], ["Mbit/s", 1e6], ["kbit/s", 1e3], ["bit/s", 1]]),
    seconds: time,
  };
  const shown = (chart, column, value) => (value === null ? "–" : FORMATS[chart.formats[column]](value));
  const tick = (format) => (value) =>
    format === "percent" ? `${Number((100 * value).toPrecision(4))} %` : FORMATS[format](value);

  // Layers differ in the ends of their names.
  const shortened = (length) => (name) =>
    name.length > length ? `${name.slice(0, Math.floor(length / 3))}…${name.slice(1 - Math.ceil((2 * length) / 3))}` : name;

  // A tooltip is built from text nodes: a name from a configuration is never markup.
  const element = (tag, text, className) => {
    const made = document.createElement(tag);
    made.textContent = text;
    if (className) made.className = className;
    return made;
  };
  const tooltip = (chart, rows, head) => {
    const box = element("div", "", "tip");
    box.append(element("strong", head));
    for (const { row, series } of rows) {
      const line = element("div", "");
      const swatch = element("span", "", "swatch");
      swatch.style.background = ownColour(series);
      const values = chart.tip.map((column) => `${chart.columns[column]} ${shown(chart, column, row[column])}`);
      line.append(swatch, element("b", series.name), ` ${values.join(" · ")}`);
      box.append(line);
    }
    return box;
  };

  const axis = (described, ink) => ({
    type: { linear: "value", log: "log", category: "category" }[described.scale],
    name: described.name,
    nameLocation: "middle",
    nameTextStyle: { color: ink.muted },
    data: described.categories,
    min: described.min,
    max: described.max,
    interval: described.interval,
    minorTick: { show: false },
    axisLabel: {
      color: ink.muted,
      hideOverlap: true,
      customValues: described.ticks,
      ...(described.categories ? {} : { formatter: tick(described.format) }),
    },
    axisLine: { show: false },
    axisTick: { show: false, customValues: described.ticks },
    splitLine: { show: !described.categories, lineStyle: { color: ink.grid } },
  });
  const base = (chart, ink) => ({
    animation: false,
    backgroundColor: ink.paper,
    textStyle: { fontFamily: FONT, color: ink.ink },
    grid: { left: 6, right: 18, top: 14, bottom: 6, outerBoundsMode: "same", outerBoundsContain: "all" },
    xAxis: { ...axis(chart.x, ink), nameGap: 30 },
    yAxis: axis(chart.y, ink),
    tooltip: {
      confine: true,
      backgroundColor: ink.card,
      borderColor: ink.grid,
      textStyle: { color: ink.ink, fontSize: 13 },
      extraCssText: "max-width: min(30rem, 90%); white-space: normal; overflow-wrap: anywhere",
    },
  });

  const rowsOf = (chart, series) => chart.rows.filter((row) => row[0] === series.name);
  const lineStyle = (series) => ({
    color: ownColour(series),
    width: series.line ? 2 : 0,
    type: DASHES[series.dash] || "solid",
  });

  // Lines with bands or error bars: learning curves, the frontier, the crossing, the network.
  const drawLines = (chart, ink) => {
    const option = base(chart, ink);
    if (chart.mark) option.grid.top = 26;
    if (chart.x.categories) Object.assign(option.xAxis.axisLabel, { rotate: 40, formatter: shortened(20), interval: 0 });
    if (chart.x.categories && chart.x.categories.length > 16) option.xAxis.axisLabel = { show: false };
    option.series = chart.series.flatMap((series) => {
      const rows = rowsOf(chart, series);
      const main = {
        type: "line",
        name: series.name,
        data: rows.map((row) => ({ value: [row[chart.at.x], row[chart.at.y]], ...(dot(chart, row, series, ink)) })),
        symbol: series.symbol || "circle",
        symbolSize: !series.line ? 12 : !chart.dots ? 5 : rows.length > 24 ? 6 : 10,
        showAllSymbol: true,
        showSymbol: !series.line || chart.dots || rows.length < 2,
        lineStyle: lineStyle(series),
        itemStyle: { color: ownColour(series) },
        emphasis: { disabled: true },
        z: 3,
      };
      return chart.at.low === undefined ? [main] : [range(chart, rows, series), main];
    });
    if (chart.through) option.series.unshift(through(chart, ink));
    if (chart.bands) {
      option.series.unshift(fastest(chart));
      Object.assign(option.xAxis, { axisLabel: { ...option.xAxis.axisLabel, margin: 14 }, nameGap: 36 }); // clear of the time's own first label
    }
    if (chart.mark && option.series.length) {
      option.series[option.series.length - 1].markLine = {
        silent: true,
        symbol: "none",
        data: [{ xAxis: chart.mark.x }],
        label: { formatter: chart.mark.name, color: ink.muted, position: "end", align: markSide(chart) },
        lineStyle: { color: ink.muted, type: "dashed" },
      };
    }
    option.tooltip.trigger = "axis";
    option.tooltip.formatter = (hovered) => {
      const points = hovered.filter((one) => one.seriesType === "line" && one.seriesName);
      const found = points.map((one) => {
        const series = chart.series.find((other) => other.name === one.seriesName);
        return { series, row: rowsOf(chart, series)[one.dataIndex] };
      });
      return found.length ? tooltip(chart, found, `${chart.columns[chart.at.x]} ${shown(chart, chart.at.x, found[0].row[chart.at.x])}`) : "";
    };
    return option;
  };
  // A mark's name stays between the axis' ends, where it meets no other label. Marks are on axes of decades only.
  const markSide = ({ mark, x }) => {
    const along = Math.log(mark.x / x.min) / Math.log(x.max / x.min);
    return along < 0.1 ? "left" : along > 0.9 ? "right" : "center";
  };
  // A strip along the axis, in the colour of the setting that is the fastest there.
  const fastest = (chart) => ({
    type: "custom",
    name: "",
    data: chart.bands.map((band) => [band.low, chart.y.min]),
    renderItem: (params, api) => {
      const band = chart.bands[params.dataIndex];
      const [left, bottom] = api.coord([band.low, chart.y.min]);
      const [right] = api.coord([band.high, chart.y.min]);
      return { type: "rect", silent: true, shape: { x: left, y: bottom - 8, width: right - left, height: 8 }, style: { fill: ownColour(band) } };
    },
    silent: true,
    tooltip: { show: false },
    z: 1,
  });
  const through = (chart, ink) => ({
    type: "line",
    name: "",
    data: chart.through.map((name) => chart.rows.find((row) => row[0] === name)).map((row) => [row[chart.at.x], row[chart.at.y]]),
    symbol: "none",
    silent: true,
    lineStyle: { color: ink.muted, width: 1.5 },
    z: 1,
  });
  const dot = (chart, row, series, ink) => {
    if (chart.at.filled === undefined || !series.dots) return {};
    const own = ownColour(series);
    return { itemStyle: { color: row[chart.at.filled] ? own : ink.paper, borderColor: own, borderWidth: 1.5 } };
  };
  // From the lowest seed to the highest as a band; a standard deviation as a bar with caps.
  const range = (chart, rows, series) => {
    const fill = ownColour(series);
    const { x, low, high } = chart.at;
    const known = rows.filter((row) => row[low] !== null);
    const band = (_, api) => ({
      type: "polygon",
      silent: true,
      shape: {
        points: [...known.map((row) => api.coord([row[x], row[low]])), ...known.map((row) => api.coord([row[x], row[high]])).reverse()],
      },
      style: { fill, opacity: 0.16 },
    });
    const bar = (params, api) => {
      const row = known[params.dataIndex];
      const [[across, bottom], [, top]] = [api.coord([row[x], row[low]]), api.coord([row[x], row[high]])];
      const stroke = (x1, y1, x2, y2) => ({ type: "line", silent: true, shape: { x1, y1, x2, y2 }, style: { stroke: fill, lineWidth: 1.5 } });
      return {
        type: "group",
        children: [stroke(across, bottom, across, top), stroke(across - 5, top, across + 5, top), stroke(across - 5, bottom, across + 5, bottom)],
      };
    };
    const bars = chart.range === "bars";
    const data = bars ? known.map((row) => [row[x], row[high]]) : known.slice(0, 1).map((row) => [row[x], row[high]]);
    return { type: "custom", name: series.name, data, renderItem: bars ? bar : band, itemStyle: { color: fill }, clip: true, silent: true, tooltip: { show: false }, z: 2 };
  };

  // A bar a layer and setting, first layer on top; dots where there are many.
  const drawBars = (chart, ink) => {
    const option = base(chart, ink);
    nameRows(chart, option);
    const half = (chart.series.length - 1) / 2; // dots of equal numbers stand beside each other
    option.series = chart.series.map((series, index) => ({
      type: chart.many ? "scatter" : "bar",
      name: series.name,
      data: rowsOf(chart, series).map((row) => [row[chart.at.x], row[chart.at.y]]),
      symbolSize: 7,
      symbolOffset: [0, 3 * (index - half)],
      barGap: "10%",
      barCategoryGap: "24%",
      itemStyle: { color: ownColour(series), opacity: chart.many ? 0.85 : 1 },
      emphasis: { disabled: true },
    }));
    option.tooltip.trigger = "axis";
    option.tooltip.axisPointer = { type: "shadow", axis: "y" };
    option.tooltip.formatter = (hovered) => {
      const name = hovered[0].axisValue ?? hovered[0].name;
      const found = chart.series.flatMap((series) => rowsOf(chart, series).filter((row) => row[chart.at.y] === name).map((row) => ({ series, row })));
      return tooltip(chart, found, name);
    };
    return option;
  };
  const nameRows = (chart, option) => {
    Object.assign(option.yAxis, { inverse: true, name: chart.y.name, nameLocation: "start", triggerEvent: false });
    Object.assign(option.yAxis.nameTextStyle, { align: "right" });
    const narrow = document.documentElement.clientWidth < 600;
    const size = chart.y.categories.length > 30 ? 10 : 12;
    Object.assign(option.yAxis.axisLabel, { interval: 0, hideOverlap: false, formatter: shortened(narrow ? 15 : 28), fontSize: size, color: option.textStyle.color });
    option.grid.top = chart.y.name ? 26 : 8;
  };

  // Tiles from x0 to x1 in a row, the darker the larger: intervals over cycles, classes over clients.
  const drawTiles = (chart, ink) => {
    const option = base(chart, ink);
    nameRows(chart, option);
    if (chart.y.categories.length > 30 && chart.y.thin) option.yAxis.axisLabel.interval = "auto";
    option.xAxis.splitLine.show = false;
    option.xAxis.minInterval = 1;
    Object.assign(option.xAxis.axisLabel, { showMinLabel: false, showMaxLabel: false }); // halves of a tile
    const places = new Map(chart.y.categories.map((name, place) => [name, place]));
    const fill = ownColour(chart);
    option.series = [
      {
        type: "custom",
        name: chart.title,
        data: chart.rows.map((row) => [row[chart.at.x], places.get(row[chart.at.y])]),
        clip: true,
        renderItem: (params, api) => {
          const row = chart.rows[params.dataIndex];
          const [left, middle] = api.coord([row[chart.at.x] - 0.5, places.get(row[chart.at.y])]);
          const [right] = api.coord([row[chart.at.end] + 0.5, places.get(row[chart.at.y])]);
          const height = api.size([0, 1])[1];
          const gap = height > 8 ? 1 : 0;
          const between = right - left > 4 ? 1 : 0;
          return {
            type: "rect",
            shape: { x: left, y: middle - height / 2, width: Math.max(right - left - between, 0.5), height: Math.max(height - gap, 1) },
            style: { fill, opacity: shade(chart, row[chart.at.value]) },
          };
        },
      },
    ];
    if (chart.sizes) addSizes(chart, option, ink);
    option.tooltip.trigger = "item";
    option.tooltip.formatter = (one) => {
      const box = element("div", "", "tip");
      if (one.seriesIndex === 1) {
        box.append(element("div", `${chart.x.name}: ${one.dataIndex}`), element("div", `samples: ${chart.sizes[one.dataIndex]}`));
        return box;
      }
      const row = chart.rows[one.dataIndex];
      chart.columns.forEach((name, column) => box.append(element("div", `${name}: ${shown(chart, column, row[column])}`)));
      return box;
    };
    return option;
  };
  // Bars above the tiles: how much each column holds. Both share their left and right ends.
  const addSizes = (chart, option, ink) => {
    const sides = { left: 56, right: 18, outerBoundsMode: "none" };
    option.grid = [{ ...sides, top: 12, height: 64 }, { ...sides, top: 110, bottom: 44 }];
    const silent = { ...option.xAxis, name: "", axisLabel: { show: false }, gridIndex: 0 };
    option.xAxis = [silent, { ...option.xAxis, gridIndex: 1 }];
    const samples = { ...axis({ name: "", format: "number", scale: "linear", min: 0 }, ink), splitNumber: 2, gridIndex: 0 };
    option.yAxis = [samples, { ...option.yAxis, gridIndex: 1 }];
    Object.assign(option.series[0], { xAxisIndex: 1, yAxisIndex: 1 });
    option.series.push({
      type: "custom",
      name: "samples",
      xAxisIndex: 0,
      yAxisIndex: 0,
      data: chart.sizes.map((size, place) => [place, size]),
      renderItem: (params, api) => {
        const [left, top] = api.coord([params.dataIndex - 0.45, chart.sizes[params.dataIndex]]);
        const [right, bottom] = api.coord([params.dataIndex + 0.45, 0]);
        return { type: "rect", shape: { x: left, y: top, width: Math.max(right - left, 0.5), height: bottom - top }, style: { fill: ink.muted } };
      },
    });
  };
  const shade = (chart, value) => 0.12 + (0.88 * (value - chart.low)) / (chart.high - chart.low || 1);

  const DRAW = { lines: drawLines, bars: drawBars, tiles: drawTiles };
  const inks = () => Object.fromEntries(["ink", "muted", "grid", "paper", "card"].map((name) => [name, colour(name)]));

  // What a reader chose to see of a chart: settings, the whole range of a score, kernels alone.
  const reduced = (chart, { hidden, full, kernels }) => {
    const seen = { ...chart };
    if (chart.series && chart.setting === undefined) {
      seen.series = chart.series.filter(({ name }) => !hidden.has(name));
      if (chart.bands) seen.bands = chart.bands.filter(({ name }) => !hidden.has(name));
      if (chart.through) seen.through = chart.through.filter((name) => !hidden.has(name));
    }
    if (full && chart.full) seen.y = chart.full;
    if (kernels && chart.kernels && chart.kernels.length) {
      const kept = new Set(chart.kernels);
      seen.y = { ...chart.y, categories: chart.kernels };
      seen.rows = chart.rows.filter((row) => kept.has(row[chart.at.y]));
      seen.height = 70 + ((chart.height - 70) * chart.kernels.length) / chart.y.categories.length;
    }
    return seen;
  };
  const optionOf = (chart) => DRAW[chart.kind](chart, inks());

  return { colour, optionOf, reduced };
})();
