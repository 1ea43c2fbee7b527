// Every chart of the page: a table drawn by ECharts, in the theme's colours.
(() => {
  "use strict";
  const { data, colour, text } = page;
  const ROW_PX = 20, AXES_PX = 64, LEGEND_PX = 28, NARROW_PX = 560, TICK_PX = 160, MIN_SHARE = 0.004, MIN_WEIGHT = 0.0002;
  const SYMBOLS = ["circle", "rect", "triangle", "diamond", "roundRect", "pin", "arrow"];
  const CATEGORIES = 8; // colours of the style that name no meaning
  const FONT = 12;
  const drawn = [];

  const label = () => ({ color: colour("dim"), fontSize: FONT });
  const quietAxis = () => ({
    axisLine: { lineStyle: { color: colour("line") } },
    axisTick: { show: false },
    splitLine: { lineStyle: { color: colour("line") } },
    axisLabel: label(),
    nameTextStyle: label(),
  });
  const valueAxis = (unit, more) => {
    const axis = quietAxis();
    return { ...axis, type: "value", ...more, axisLabel: { ...axis.axisLabel, hideOverlap: true, formatter: (value) => text(value, unit).replace(/(\.\d*?)0+(?=\s|$)/, (all, kept) => (kept === "." ? "" : kept)) } };
  };
  const legend = (width, names) => ({ type: width < NARROW_PX ? "scroll" : "plain", top: 0, left: 0, itemWidth: 12, itemHeight: 11, icon: "roundRect", textStyle: label(), pageTextStyle: label(), data: names });
  const placeOf = (table, key) => table.columns.findIndex((column) => column.key === key);
  const unitOf = (table, key) => table.columns[placeOf(table, key)].unit;

  // Names come from traces: they become text nodes, never markup.
  function tip(lines) {
    const box = document.createElement("div");
    lines.forEach(([strong, rest, fill]) => {
      const line = document.createElement("div");
      if (fill) {
        const key = document.createElement("i");
        key.className = "key";
        key.style.background = fill;
        line.append(key);
      }
      const name = document.createElement(rest === undefined ? "b" : "span");
      name.textContent = strong;
      line.append(name);
      if (rest !== undefined) {
        const value = document.createElement("b");
        value.textContent = "  " + rest;
        line.append(value);
      }
      box.append(line);
    });
    return box;
  }
  const tooltip = (trigger, formatter) => ({
    trigger,
    confine: true,
    backgroundColor: colour("sheet"),
    borderColor: colour("line"),
    textStyle: { color: colour("ink"), fontSize: FONT },
    extraCssText: "max-width:420px;white-space:normal;overflow-wrap:anywhere;box-shadow:none;font-variant-numeric:tabular-nums",
    axisPointer: { type: trigger === "axis" ? "shadow" : "none", shadowStyle: { color: colour("tint"), opacity: 0.6 } },
    formatter,
  });

  // Bars too short to be seen are left to the table.
  function drawnRows(chart, table) {
    const rows = table.rows.slice(0, chart.max_rows);
    if (chart.kind !== "bars") return table.rows;
    const longest = (row) => Math.max(...chart.series.map((one) => Math.abs(row[placeOf(table, one.column)])));
    const least = MIN_SHARE * Math.max(...rows.map(longest));
    return rows.filter((row) => longest(row) >= least);
  }
  const barOf = (value, meaning) => (meaning ? { value, itemStyle: { color: colour(meaning) } } : value);
  // A name that is too long for its room, broken at a blank; what is too long then ends in dots.
  const lettersIn = (room) => Math.floor(room / (0.55 * FONT));
  function inTwoLines(name, room) {
    const at = name.lastIndexOf(" ", lettersIn(room));
    return name.length <= lettersIn(room) || at < 1 ? name : name.slice(0, at) + "\n" + name.slice(at + 1);
  }

  function bars(chart, table, width) {
    const isUpright = chart.kind === "columns";
    const rows = drawnRows(chart, table), isStacked = chart.series.some((one) => one.group);
    const names = rows.map((row) => text(row[placeOf(table, chart.category)], chart.category_unit));
    const titles = [...new Set(chart.series.filter((one) => one.colour !== "none").map((one) => one.title))];
    const series = chart.series.map((one) => ({
      type: "bar",
      name: one.title,
      stack: one.group || one.column,
      barMaxWidth: 22,
      barGap: "12%",
      barCategoryGap: "28%",
      animation: false,
      emphasis: { disabled: true },
      itemStyle: { color: one.colour === "none" ? "transparent" : colour(one.colour), opacity: one.is_faint ? 0.5 : 1 },
      label: isStacked || one.is_faint || isUpright ? undefined : { show: true, position: "right", color: colour("dim"), fontSize: FONT - 1, formatter: (bar) => text(bar.value, chart.unit) },
      data: rows.map((row) => barOf(row[placeOf(table, one.column)], table.colours[table.rows.indexOf(row)])),
    }));
    const room = Math.min(260, width * (width < NARROW_PX ? 0.46 : 0.38));
    const isLong = !isUpright && names.some((name) => name.length > lettersIn(room));
    const broken = isLong ? { width: room, overflow: "truncate", lineHeight: FONT + 1, formatter: (name) => inTwoLines(name, room) } : {};
    const category = {
      ...quietAxis(), type: "category", data: names, inverse: !isUpright, splitLine: { show: false },
      axisLabel: { ...label(), color: colour("ink"), hideOverlap: isUpright, ...broken },
    };
    // As many ticks as their labels leave room for: half of a narrow chart is names.
    const ticks = isUpright ? 5 : Math.max(2, Math.min(5, Math.floor(width / TICK_PX)));
    const value = valueAxis(chart.unit, { splitNumber: ticks, ...(chart.minimum ? { min: chart.minimum } : undefined) });
    return {
      grid: { left: 8, right: isStacked || isUpright ? 28 : 64, top: titles.length > 1 ? LEGEND_PX : 8, bottom: 4, containLabel: true },
      legend: titles.length > 1 ? legend(width, titles) : undefined,
      tooltip: tooltip("axis", (found) => tip([[found[0].name], ...found.filter((one) => one.value !== null && chart.series[one.seriesIndex].colour !== "none").map((one) => {
        const spec = chart.series[one.seriesIndex];
        return [spec.title + (spec.group ? ", " + spec.group : ""), text(one.value, chart.unit), one.color];
      })])),
      xAxis: isUpright ? category : value,
      yAxis: isUpright ? value : category,
      series,
    };
  }

  function curves(chart, table, width) {
    const x = placeOf(table, chart.category);
    return {
      grid: { left: 8, right: 28, top: chart.series.length > 1 ? LEGEND_PX : 10, bottom: 4, containLabel: true },
      legend: chart.series.length > 1 ? { ...legend(width), icon: undefined } : undefined,
      tooltip: { ...tooltip("axis", (found) => tip([[text(found[0].value[0], chart.category_unit)], ...found.map((one) => [one.seriesName, text(one.value[1], chart.unit), one.color])])), axisPointer: { type: "line" } },
      xAxis: valueAxis(chart.category_unit, { min: "dataMin", max: "dataMax", splitLine: { show: false } }),
      yAxis: valueAxis(chart.unit),
      series: chart.series.map((one) => ({
        type: "line", name: one.title, step: chart.kind === "steps" ? "end" : false, showSymbol: false, animation: false,
        emphasis: { disabled: true }, sampling: "minmax",
        lineStyle: { color: colour(one.colour), width: 1.5, type: one.is_faint ? "dashed" : "solid" },
        itemStyle: { color: colour(one.colour) },
        data: table.rows.map((row) => [row[x], row[placeOf(table, one.column)]]),
      })),
    };
  }

  // Points of no weight, and those off a logarithmic axis, are left to the table.
  function drawnPoints(chart, table) {
    const [x, y, size] = [chart.category, chart.series[0].column, chart.size_by].map((key) => placeOf(table, key));
    const least = size < 0 ? 0 : MIN_WEIGHT * table.rows.reduce((sum, row) => sum + row[size], 0);
    return table.rows.filter((row) => row[x] > 0 && row[y] > 0 && (size < 0 || row[size] >= least));
  }
  // The next of 1, 2, 5, 10, ... below or above: decades without points are not drawn.
  function edge(value, rounded) {
    const decade = 10 ** Math.floor(Math.log10(value)), steps = [1, 2, 5, 10];
    return decade * (rounded === Math.ceil ? steps.find((step) => step * decade >= value) : steps.findLast((step) => step * decade <= value));
  }
  // The heaviest points are named, each where no other name stands.
  const NAMED = 8, NAME_PX = 120, NAME_LETTERS = 24;
  const brief = (name) => (name.length > NAME_LETTERS ? name.slice(0, NAME_LETTERS - 1) + "\u2026" : name);
  function namedRows(rows, at, pixel) {
    const taken = [], named = new Set();
    for (const row of rows) {
      const [x, y] = pixel(row);
      if (named.size >= NAMED || taken.some(([a, b]) => Math.abs(a - x) < NAME_PX && Math.abs(b - y) < 15)) continue;
      taken.push([x, y]);
      named.add(row);
    }
    return named;
  }
  function points(chart, table, width) {
    const [spec] = chart.series;
    const at = (row, key) => row[placeOf(table, key)];
    const rows = drawnPoints(chart, table);
    const groups = [...new Set(rows.map((row) => (chart.colour_by ? at(row, chart.colour_by) : spec.title)))];
    const largest = Math.max(1, ...rows.map((row) => (chart.size_by ? at(row, chart.size_by) : 1)));
    const size = (row) => (chart.size_by ? 5 + 21 * Math.sqrt(at(row, chart.size_by) / largest) : 8);
    const xs = rows.map((row) => at(row, chart.category)), ys = rows.map((row) => at(row, spec.column));
    const tops = chart.levels.flatMap((level) => level.points.map((point) => point[1]));
    const [left, right] = [Math.min(...xs), Math.max(...xs)], [low, high] = [Math.min(...ys), Math.max(...ys, ...tops)];
    const share = (value, from, to) => Math.log(value / from) / (Math.log(to / from) || 1);
    const heaviest = [...rows].sort((a, b) => size(b) - size(a));
    const named = namedRows(heaviest, at, (row) => [share(at(row, chart.category), left, right) * width * 0.85, share(at(row, spec.column), low, high) * 340]);
    const logAxis = (unit, name, low, high) => valueAxis(unit, {
      type: "log", name, nameLocation: "middle", nameGap: name ? 28 : 0,
      min: edge(low / 1.3, Math.floor), max: edge(high * 1.3, Math.ceil),
    });
    return {
      grid: { left: 8, right: 36, top: LEGEND_PX + (NARROW_PX <= width && width < 1000 ? 44 : 22), bottom: 24, containLabel: true },
      legend: { ...legend(width, groups.map((name, i) => ({ name, icon: SYMBOLS[i % SYMBOLS.length] }))), icon: undefined },
      tooltip: tooltip("item", (one) => {
        if (one.seriesType === "line") return tip([[one.seriesName]]);
        const row = one.data.row;
        return tip([[String(at(row, chart.name))], ...table.columns.filter((column) => column.key !== chart.name && row[placeOf(table, column.key)] !== null).map((column) => [column.title, text(at(row, column.key), column.unit)])]);
      }),
      xAxis: logAxis(chart.category_unit, table.columns[placeOf(table, chart.category)].title, left, right),
      yAxis: logAxis(chart.unit, "", low, high),
      series: [
        ...groups.map((group, i) => ({
          type: "scatter", name: group, animation: false, emphasis: { disabled: true },
          symbol: SYMBOLS[i % SYMBOLS.length],
          itemStyle: { color: colour("category-" + (i % CATEGORIES)), opacity: 0.75, borderColor: colour("sheet"), borderWidth: 0.7 },
          data: rows.filter((row) => !chart.colour_by || at(row, chart.colour_by) === group)
            .map((row) => ({
              value: [at(row, chart.category), at(row, spec.column)], symbolSize: size(row), row,
              label: { show: named.has(row), formatter: () => brief(String(at(row, chart.name)).replace(/^aten::/, "")), position: share(at(row, chart.category), left, right) > 0.85 ? "left" : "right", color: colour("ink"), fontSize: FONT - 1 },
            })),
        })),
        ...chart.levels.map((level) => ({
          type: "line", name: level.title, data: level.points, showSymbol: false, animation: false, clip: true, emphasis: { disabled: true },
          lineStyle: { color: colour(level.colour), width: 1.2, type: "dashed" },
          endLabel: { show: true, formatter: level.title, color: colour("dim"), fontSize: FONT - 1, align: "right", offset: [-2, -8] },
        })),
      ],
    };
  }

  const OPTIONS = { bars, columns: bars, curves, steps: curves, points };
  function height(chart, table) {
    if (chart.kind === "points") return 440;
    if (chart.kind !== "bars") return 260;
    const groups = new Set(chart.series.map((one) => one.group || one.column)).size;
    return AXES_PX + drawnRows(chart, table).length * (groups > 1 ? 14 * groups + 8 : ROW_PX + 6);
  }
  // Without what is drawn paler, where a reader has not asked for it.
  const seen = (spec) => (page.hasTwins() ? spec : { ...spec, series: spec.series.filter((one) => !one.is_faint) });
  function draw(one) {
    one.spec = seen(data.charts[one.box.dataset.chart]);
    one.box.style.height = height(one.spec, one.table) + "px";
    if (one.chart.getHeight() !== one.box.clientHeight) one.chart.resize();
    one.chart.setOption({ textStyle: { fontFamily: getComputedStyle(document.body).fontFamily }, ...OPTIONS[one.spec.kind](one.spec, one.table, one.box.clientWidth) }, true);
  }
  for (const box of document.querySelectorAll("[data-chart]")) {
    const spec = data.charts[box.dataset.chart], table = data.tables[box.dataset.chart];
    box.style.height = height(seen(spec), table) + "px";
    const chart = echarts.init(box, null, { renderer: "svg" });
    const one = { box, spec, table, chart };
    drawn.push(one);
    draw(one);
    // What cannot be seen yet has no width; its first real one draws it again.
    new ResizeObserver(() => {
      if (box.clientWidth && box.clientWidth !== chart.getWidth()) { chart.resize(); draw(one); }
    }).observe(box);
  }
  const redraw = () => drawn.forEach((one) => { one.chart.resize(); draw(one); });
  document.addEventListener("themechange", redraw);
  document.addEventListener("twinschange", redraw);
  addEventListener("beforeprint", redraw);
  addEventListener("afterprint", redraw);
})();
