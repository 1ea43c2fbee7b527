// The timeline: every rank's tracks, measured above replayed, drawn on a canvas of our own.
(async () => {
  "use strict";
  const { text, colour } = page;
  const data = page.data.strip;
  const box = document.getElementById("timeline");
  if (!box || !data) return;
  const byId = (id) => document.getElementById(id);
  const canvas = byId("timeline-canvas"), map = byId("timeline-map"), tip = byId("timeline-tip");
  const pen = canvas.getContext("2d"), mapPen = map.getContext("2d");
  const TOP = 24, TRACK_GAP = 5, RANK_GAP = 14, MAP_PX = 38, MIN_SPAN_NS = 2000, LABEL_PX = 11, FAINT = 0.13, NONE = -1;
  const KIND_COLOURS = ["host", "compute", "compute", "copy", "wait", "communication", "idle", "wait", "operator", "annotation", "python", "annotation", "warn"];
  const IDLE_TRACK = data.tracks.indexOf("why idle"), IDLE_CLASS = "idle: ";
  const WAIT_KIND = data.kinds.indexOf("wait for other ranks"), FIRST_FRAME = data.kinds.indexOf("framework operator");
  const [NAME, OPERATOR, CLASS, BLOCK] = data.facet_names.keys();
  const full = Math.max(1, data.window_ns / data.tick_ns);
  const least = Math.min(full, Math.max(20, MIN_SPAN_NS / data.tick_ns)); // nearer there is nothing to see

  if (!("DecompressionStream" in window)) {
    byId("timeline-note").textContent = "The timeline needs a browser from 2023 or later.";
    return;
  }

  // 1. the rows, unpacked: all columns of 32 bits row by row, then all kinds
  const deflated = Uint8Array.from(atob(data.packed), (c) => c.charCodeAt(0));
  const inflated = new Blob([deflated]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  const buffer = await new Response(inflated).arrayBuffer();
  let at = 0;
  const words = (count, isRising) => {
    const column = new Int32Array(buffer, at, count);
    at += 4 * count;
    if (isRising) for (let i = 1; i < count; i++) column[i] += column[i - 1];
    return column;
  };
  const rows = data.rows.map((row) => ({
    rank: row.rank, track: row.track, title: row.title, marks: row.marks,
    start: words(row.num_slices, true), length: words(row.num_slices), subject: words(row.num_slices),
    awaitedRow: words(row.num_slices), awaitedSince: words(row.num_slices),
    pathStart: words(row.num_spans, true), pathLength: words(row.num_spans),
  }));
  for (const row of rows) {
    row.kind = new Uint8Array(buffer, at, row.start.length);
    at += row.start.length;
  }
  for (const row of rows) {
    // Lanes of a track overlap, so the latest end so far is what a binary search may trust.
    row.latest = new Float64Array(row.start.length);
    let latest = 0;
    for (let i = 0; i < row.start.length; i++) {
      latest = Math.max(latest, row.start[i] + row.length[i]);
      row.latest[i] = latest;
    }
  }
  const facet = (subject, which) => {
    const at = subject < 0 ? NONE : data.facets[subject][which];
    return at < 0 ? "" : data.texts[at];
  };
  // A track that no rank uses takes no room.
  const isUsed = data.tracks.map((_, track) => rows.some((row) => row.track === track && (row.start.length || row.pathStart.length)));
  const titles = [...new Set(rows.map((row) => row.title))];
  const hasPath = rows.some((row) => row.pathStart.length);

  // 2. what is shown
  let from = 0, to = full, shown = [], rowPx = 9, left = 148, height = 0;
  let matches = null; // per subject: does the filter choose it; null: no filter
  let stretch = null; // a span that is marked: of a finding, or measured by dragging
  let pointer = null; // the tick under the pointer
  let isPathShown = hasPath, picked = null;
  const chosen = { rank: "", title: page.hasTwins() ? "" : titles[0] };

  function layOut() {
    shown = rows.filter((row) => isUsed[row.track] && (chosen.rank === "" || String(row.rank) === chosen.rank) && (chosen.title === "" || row.title === chosen.title));
    const numRanks = new Set(shown.map((row) => row.rank)).size;
    const numTitles = new Set(shown.map((row) => row.title)).size;
    rowPx = numRanks * numTitles <= 4 ? 18 : numRanks * numTitles <= 10 ? 14 : numRanks <= 8 ? 10 : 8;
    left = box.clientWidth < 620 ? 92 : 148;
    let y = TOP;
    shown.forEach((row, i) => {
      const before = shown[i - 1];
      if (before && before.rank !== row.rank) y += RANK_GAP;
      else if (before && before.track !== row.track) y += TRACK_GAP;
      row.y = y;
      y += rowPx;
    });
    height = y + 6;
  }

  // 3. drawing
  let palette = {};
  function readPalette() {
    palette = Object.fromEntries(["ink", "dim", "line", "tint", "path", "sheet", "compute", "focus", "on"].map((name) => [name, colour(name)]));
    palette.kinds = KIND_COLOURS.map(colour);
  }
  function sized(target, targetPen, width, tall) {
    const scale = devicePixelRatio || 1;
    target.width = Math.round(width * scale);
    target.height = Math.round(tall * scale);
    target.style.height = tall + "px";
    targetPen.setTransform(scale, 0, 0, scale, 0, 0);
  }
  function firstAfter(row, tick) {
    let low = 0, high = row.latest.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (row.latest[middle] > tick) high = middle; else low = middle + 1;
    }
    return low;
  }
  const isMatch = (row, i) => matches === null || (row.subject[i] >= 0 && matches[row.subject[i]] === 1);
  let pending = 0;
  function draw() {
    if (!pending) pending = requestAnimationFrame(() => { pending = 0; drawNow(); });
  }
  function drawNow() {
    const width = box.clientWidth;
    sized(canvas, pen, width, height);
    const perTick = (width - left) / (to - from);
    drawAxis(width, perTick);
    for (const row of shown) { drawRow(row, width, perTick); drawNames(row, width, perTick); }
    drawMarks(width, perTick);
    drawLabels();
    drawStretch(width, perTick);
    drawPicked(width, perTick);
    drawArrow(width, perTick);
    drawMap(width);
  }
  function drawRow(row, width, perTick) {
    pen.fillStyle = palette.tint;
    pen.fillRect(left, row.y, width - left, rowPx - 1);
    for (const isChosen of matches === null ? [true] : [false, true]) {
      pen.globalAlpha = isChosen ? 1 : FAINT;
      // Slices of one kind that end inside the pixel drawn last add nothing to it.
      const lastX = new Float64Array(data.kinds.length).fill(-1);
      for (let i = firstAfter(row, from); i < row.start.length && row.start[i] < to; i++) {
        if (isMatch(row, i) !== isChosen) continue;
        const kind = row.kind[i];
        const x1 = Math.min(width, left + (row.start[i] + row.length[i] - from) * perTick);
        if (x1 < left || x1 < lastX[kind]) continue;
        const x0 = Math.max(left, left + (row.start[i] - from) * perTick);
        const wide = Math.max(x1 - x0 - (x1 - x0 > 4 ? 0.6 : 0), matches === null ? 0.35 : isChosen ? 1.2 : 0.35);
        lastX[kind] = wide < 0.5 ? x0 + 0.5 : x1;
        pen.fillStyle = palette.kinds[kind];
        pen.fillRect(x0, row.y, wide, rowPx - 1);
        if (kind >= FIRST_FRAME && wide > 4) { // frames lie inside each other: their begins are told apart
          pen.fillStyle = palette.dim;
          pen.fillRect(x0, row.y, 0.7, rowPx - 1);
        }
      }
    }
    pen.globalAlpha = 1;
    if (!isPathShown) return;
    pen.fillStyle = palette.path;
    const tall = Math.max(2.5, rowPx * 0.28);
    for (let i = 0; i < row.pathStart.length; i++) {
      const x0 = Math.max(left, left + (row.pathStart[i] - from) * perTick);
      const x1 = Math.min(width, left + (row.pathStart[i] + row.pathLength[i] - from) * perTick);
      if (x1 > left && x0 < width) pen.fillRect(x0, row.y + rowPx - 1 - tall, Math.max(x1 - x0, 0.6), tall);
    }
  }
  // What tells a name from others of its kind: without what it stands in, where that has no room.
  const LEAST_TOLD = 6;
  function shortName(whole, fits) {
    const name = whole.length > fits ? whole.replace(/^\S*(::|\/)(?=\S{2})/, "") : whole;
    if (name.length <= fits) return name;
    return fits > LEAST_TOLD ? name.slice(0, fits - 1) + "\u2026" : "";
  }
  // Names inside slices that have room for them.
  const DARK = new Set(["copy", "wait", "communication", "idle", "operator", "annotation", "python"]);
  function drawNames(row, width, perTick) {
    if (rowPx < LABEL_PX) return;
    const least = 34 / perTick;
    pen.font = Math.min(11, rowPx - 3) + "px system-ui, sans-serif";
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    for (let i = firstAfter(row, from); i < row.start.length && row.start[i] < to; i++) {
      if (row.length[i] < least || !isMatch(row, i)) continue;
      // What begins inside a frame covers its rest.
      const next = row.start[i + 1], end = next < row.start[i] + row.length[i] ? next : row.start[i] + row.length[i];
      const x0 = Math.max(left, left + (row.start[i] - from) * perTick), x1 = Math.min(width, left + (end - from) * perTick);
      const fits = Math.floor((x1 - x0 - 6) / 5.6);
      if (fits < 4) continue;
      const name = shortName(facet(row.subject[i], NAME) || data.kinds[row.kind[i]], fits);
      if (!name) continue;
      pen.fillStyle = DARK.has(KIND_COLOURS[row.kind[i]]) ? palette.ink : palette.on;
      pen.fillText(name, x0 + 3, row.y + (rowPx - 1) / 2 + 0.5);
    }
  }
  // What a finding or the reader has marked.
  function drawStretch(width, perTick) {
    if (!stretch) return;
    const x0 = Math.max(left, left + (stretch.start - from) * perTick), x1 = Math.min(width, left + (stretch.end - from) * perTick);
    if (x1 < left || x0 > width) return;
    pen.fillStyle = palette.focus;
    pen.globalAlpha = 0.16;
    pen.fillRect(x0, 0, Math.max(1, x1 - x0), height);
    pen.globalAlpha = 1;
    pen.fillRect(x0, 0, 1, height);
    pen.fillRect(Math.max(x0, x1 - 1), 0, 1, height);
    const label = text((stretch.end - stretch.start) * data.tick_ns, "ns");
    pen.font = "600 11px system-ui, sans-serif";
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    const middle = Math.min(width - 30, Math.max(left + 30, (x0 + x1) / 2)), wide = pen.measureText(label).width + 10;
    pen.fillRect(middle - wide / 2, 1, wide, 15);
    pen.fillStyle = palette.sheet;
    pen.fillText(label, middle, 9);
  }
  // From what the chosen slice waited for to it.
  function drawArrow(width, perTick) {
    const source = picked && !picked.isPath ? awaited(picked) : null;
    if (!source || !shown.includes(source.row) || !shown.includes(picked.row)) return;
    const clamped = (tick) => Math.max(left - 6, Math.min(width + 6, left + (tick - from) * perTick));
    // Waiting ends with what it waited for; work begins after it.
    const isIdle = picked.row.track === IDLE_TRACK || picked.row.kind[picked.i] === WAIT_KIND;
    const x0 = clamped(source.tick), x1 = clamped(isIdle ? picked.start + picked.length : picked.start);
    const y0 = source.row.y + rowPx / 2, y1 = picked.row.y + rowPx / 2;
    pen.save();
    pen.beginPath();
    pen.rect(left, 0, width - left, height);
    pen.clip();
    pen.strokeStyle = pen.fillStyle = palette.focus;
    pen.lineWidth = 1.8;
    pen.beginPath();
    const bend = Math.max(12, Math.abs(x1 - x0) / 2);
    pen.moveTo(x0, y0);
    pen.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
    pen.stroke();
    pen.beginPath();
    pen.moveTo(x1, y1);
    pen.lineTo(x1 - 7, y1 - 4);
    pen.lineTo(x1 - 7, y1 + 4);
    pen.fill();
    pen.restore();
  }
  function awaited({ row, i }) {
    const place = row.awaitedRow[i];
    return place < 0 ? null : { row: rows[place], tick: row.start[i] - row.awaitedSince[i] };
  }
  function drawMarks(width, perTick) {
    pen.fillStyle = palette.ink;
    for (const row of shown) {
      for (const mark of row.marks) {
        const x = left + (mark - from) * perTick;
        if (x >= left && x < width) pen.fillRect(x, row.y - 1, 1.2, rowPx + 1);
      }
    }
  }
  function drawAxis(width, perTick) {
    const spanNs = (to - from) * data.tick_ns, numLabels = width < 620 ? 3 : 6;
    let stepNs = 10 ** Math.floor(Math.log10(spanNs / numLabels));
    for (const factor of [5, 2]) if (spanNs / (stepNs * factor) >= numLabels) { stepNs *= factor; break; }
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    pen.textAlign = "left";
    const [name, zero] = stepAt((from + to) / 2), zeroNs = zero * data.tick_ns;
    // Zoomed in, marks count from a round time on that is said once.
    const baseNs = stepNs >= spanNs / 1e3 && Math.abs(from * data.tick_ns - zeroNs) < 1e3 * stepNs ? 0 : Math.floor((from * data.tick_ns - zeroNs) / (10 * stepNs)) * 10 * stepNs;
    for (let n = Math.ceil((from * data.tick_ns - zeroNs - baseNs) / stepNs); n * stepNs + baseNs + zeroNs < to * data.tick_ns; n++) {
      const x = left + ((n * stepNs + baseNs + zeroNs) / data.tick_ns - from) * perTick;
      pen.fillStyle = palette.line;
      pen.fillRect(x, TOP - 8, 1, height - TOP + 2);
      pen.fillStyle = palette.dim;
      if (x < width - 50) pen.fillText((baseNs ? "+" : "") + axisText(n * stepNs, stepNs), x + 3, 9);
    }
    pen.fillStyle = palette.dim;
    const origin = (name || "begin") + (baseNs ? " + " + text(baseNs, "ns") : "");
    pen.fillText(origin, 0, 9, left - 4);
    box.dataset.origin = origin;
  }
  // The step that a moment belongs to: its name, and where its first rank begins it.
  function stepAt(tick) {
    return data.steps.findLast((step) => step[1] <= tick) || data.steps[0] || ["", 0];
  }
  const atText = (tick) => {
    const [name, zero] = stepAt(tick);
    return text((tick - zero) * data.tick_ns, "ns") + (name ? " into " + name : "");
  };
  // As many digits as tell one mark of the axis from the next.
  function axisText(ns, stepNs) {
    if (ns === 0) return "0";
    const [size, unit] = [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]].find(([size]) => Math.abs(ns) >= size) || [1, "ns"];
    return (ns / size).toLocaleString("en", { maximumFractionDigits: Math.max(0, Math.ceil(Math.log10(size / stepNs))) }) + " " + unit;
  }
  const NARROW_TRACKS = { optimizer: "optim", operators: "ops", compute: "comp", communication: "comm", "why idle": "idle" };
  function drawLabels() {
    pen.textBaseline = "middle";
    shown.forEach((row, i) => {
      const before = shown[i - 1], after = shown[i + 1];
      if (!before || before.rank !== row.rank) {
        pen.fillStyle = palette.ink;
        pen.font = "600 12px system-ui, sans-serif";
        pen.textAlign = "left";
        pen.fillText("rank " + row.rank, 0, row.y + (rowPx - 1) / 2);
      }
      if (!before || before.rank !== row.rank || before.track !== row.track) {
        pen.fillStyle = palette.dim;
        pen.font = "11px system-ui, sans-serif";
        pen.textAlign = "right";
        // Rows of one track stand on each other, measured over replayed: one label for both.
        const rowsOfTrack = after && after.rank === row.rank && after.track === row.track ? 2 : 1;
        const isNarrow = left < 100;
        const track = data.tracks[row.track];
        pen.fillText((isNarrow && NARROW_TRACKS[track]) || track, left - (isNarrow ? 6 : 8), row.y + (rowsOfTrack * rowPx - 1) / 2);
      }
    });
  }
  function drawPicked(width, perTick) {
    if (!picked || !shown.includes(picked.row)) return;
    const x0 = left + (picked.start - from) * perTick, x1 = x0 + picked.length * perTick;
    if (x1 < left || x0 > width) return;
    pen.strokeStyle = palette.ink;
    pen.lineWidth = 2;
    pen.strokeRect(Math.max(left, x0) - 1, picked.row.y - 1.5, Math.max(3, Math.min(width, x1) - Math.max(left, x0)) + 2, rowPx + 2);
  }
  function drawMap(width) {
    sized(map, mapPen, width, MAP_PX);
    const wide = width - left, perNs = wide / data.window_ns, base = MAP_PX - 2, tall = MAP_PX - 8;
    mapPen.fillStyle = palette.tint;
    mapPen.fillRect(left, 4, wide, tall + 2);
    mapPen.fillStyle = palette.dim;
    mapPen.font = "11px system-ui, sans-serif";
    mapPen.textAlign = "right";
    mapPen.textBaseline = "middle";
    mapPen.fillText("busy", left - 8, MAP_PX / 2);
    page.data.busy.forEach((busy, side) => {
      mapPen.beginPath();
      mapPen.moveTo(left, base);
      busy.points.forEach(([ns, share]) => mapPen.lineTo(left + ns * perNs, base - share * tall));
      if (side === 0) {
        mapPen.lineTo(left + (busy.points.at(-1) || [0])[0] * perNs, base);
        mapPen.globalAlpha = 0.35;
        mapPen.fillStyle = palette.compute;
        mapPen.fill();
      } else {
        mapPen.strokeStyle = palette.compute;
        mapPen.lineWidth = 1.2;
        mapPen.stroke();
      }
      mapPen.globalAlpha = 1;
    });
    const x0 = left + from / full * wide, x1 = left + to / full * wide;
    mapPen.fillStyle = palette.sheet;
    mapPen.globalAlpha = 0.65;
    mapPen.fillRect(left, 2, x0 - left, MAP_PX - 2);
    mapPen.fillRect(x1, 2, width - x1, MAP_PX - 2);
    mapPen.globalAlpha = 1;
    mapPen.strokeStyle = palette.ink;
    mapPen.lineWidth = 1;
    mapPen.strokeRect(x0 + 0.5, 2.5, Math.max(2, x1 - x0 - 1), MAP_PX - 4);
  }

  // 4. moving
  function view(start, span) {
    const wide = Math.min(full, Math.max(least, span));
    tip.hidden = true;
    from = Math.min(Math.max(0, start), full - wide);
    to = from + wide;
    box.dataset.from = from;
    box.dataset.to = to;
    draw();
  }
  function zoom(factor, at = (from + to) / 2) {
    const span = Math.min(full, Math.max(least, (to - from) * factor));
    view(at - (at - from) / (to - from) * span, span);
  }
  const tickAt = (x) => from + (x - left) / (box.clientWidth - left) * (to - from);
  function place(event) {
    const area = event.currentTarget.getBoundingClientRect();
    return [event.clientX - area.left, event.clientY - area.top];
  }

  // 5. finding
  function sliceAt(x, y) {
    const row = shown.find((one) => y >= one.y && y < one.y + rowPx);
    if (!row || x < left) return null;
    const tick = tickAt(x), slack = 1.5 * (to - from) / (box.clientWidth - left);
    let best = NONE, nearest = Infinity;
    for (let i = firstAfter(row, tick - slack); i < row.start.length && row.start[i] <= tick + slack; i++) {
      const away = Math.max(0, row.start[i] - tick, tick - row.start[i] - row.length[i]);
      // Under the pointer before beside it; of several, the shortest.
      if (away < nearest || (away === nearest && row.length[i] < row.length[best])) { best = i; nearest = away; }
    }
    return best === NONE || nearest > slack ? null : slice(row, best);
  }
  const slice = (row, i) => ({ row, i, start: row.start[i], length: row.length[i] });
  function describe({ row, i, start, length }) {
    const subject = row.subject[i], kind = data.kinds[row.kind[i]];
    const name = facet(subject, NAME) || (subject < 0 ? "several, " + kind : kind);
    const isIdle = facet(subject, CLASS).startsWith(IDLE_CLASS);
    const more = isIdle ? [facet(subject, OPERATOR)].filter(Boolean) : [["operator", facet(subject, OPERATOR)], ["class", facet(subject, CLASS)], ["block", facet(subject, BLOCK)]]
      .filter(([, value]) => value && value !== name).map(([what, value]) => what + ": " + value);
    return [name, text(length * data.tick_ns, "ns") + ", " + atText(start), ...more, kind + ", rank " + row.rank + ", " + row.title, ...waitedFor(row, i)];
  }
  function waitedFor(row, i) {
    const source = awaited({ row, i });
    if (!source) return [];
    return ["waited for rank " + source.row.rank + ", " + data.tracks[source.row.track] + ", until " + atText(source.tick)];
  }
  function showTip(event) {
    const [x, y] = place(event);
    const found = sliceAt(x, y);
    tip.hidden = found === null;
    if (found === null) return;
    tip.replaceChildren(...describe(found).map((line, i) => {
      const part = document.createElement(i ? "div" : "b");
      part.textContent = line;
      return part;
    }));
    tip.style.left = Math.max(0, Math.min(x + 14, box.clientWidth - tip.offsetWidth - 4)) + "px";
    tip.style.top = canvas.offsetTop + y + 16 + "px";
  }
  function pick(found) {
    picked = found;
    if (found) { stretch = stretch && found.start < stretch.end && found.start + found.length > stretch.start ? stretch : null; }
    byId("timeline-picked").textContent = found ? describe(found).join("  \u00b7  ") : "";
    draw();
  }
  function mark(start, end) {
    stretch = { start, end };
    box.dataset.stretch = Math.round((end - start) * data.tick_ns);
    draw();
  }
  function tellStretch(one, other) {
    const start = Math.max(0, Math.min(one, other)), end = Math.min(full, Math.max(one, other));
    mark(start, end);
    byId("timeline-picked").textContent = text((end - start) * data.tick_ns, "ns") + " from " + atText(start) + " to " + atText(end) + "; Enter zooms to it, Escape lets go of it";
  }
  function zoomToChosen() {
    const [start, length] = stretch ? [stretch.start, stretch.end - stretch.start] : picked ? [picked.start, picked.length] : [];
    if (length !== undefined) view(start - length / 2, length * 2);
  }
  // A finding's interval: its rank's measured rows, the span marked, some time around it.
  function show(rank, beginNs, endNs) {
    const start = beginNs / data.tick_ns, end = Math.max(start + 1, endNs / data.tick_ns);
    layOut();
    mark(start, end);
    view(start - (end - start), 3 * (end - start));
    const here = rows.filter((row) => row.rank === rank && row.title === (chosen.title || titles[0]));
    const found = here.filter((row) => row.track === IDLE_TRACK || data.tracks[row.track] === "communication").map((row) => {
      const i = firstAfter(row, start);
      return i < row.start.length && row.start[i] < end ? slice(row, i) : null;
    }).filter(Boolean)[0];
    pick(found || null);
  }
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a.at");
    if (link) show(...link.dataset.stretch.split(",").map(Number));
  });
  function pickBeside(direction) {
    // In order of time, then of rows; of what the filter chooses, or of the path, or of everything.
    const onPath = isPathShown && matches === null;
    const key = picked ? [picked.start, shown.indexOf(picked.row), picked.i] : [direction > 0 ? from - 1 : to, NONE, NONE];
    const isBefore = (a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2];
    let best = null, bestKey = null;
    shown.forEach((row, place) => {
      const starts = onPath ? row.pathStart : row.start;
      for (let i = 0; i < starts.length; i++) {
        if (!onPath && !isMatch(row, i)) continue;
        const own = [starts[i], place, i];
        if (direction * isBefore(own, key) <= 0) continue;
        if (best && direction * isBefore(own, bestKey) >= 0) continue;
        best = onPath ? { row, i, start: row.pathStart[i], length: row.pathLength[i], isPath: true } : slice(row, i);
        bestKey = own;
      }
    });
    if (best === null) return;
    if (best.start + best.length < from || best.start > to) view(best.start + best.length / 2 - (to - from) / 2, to - from);
    pickOnPath(best);
  }
  function pickOnPath(best) {
    if (!best.isPath) { pick(best); return; }
    const { row, start, length } = best;
    let inside = NONE, most = 0;
    for (let i = firstAfter(row, start); i < row.start.length && row.start[i] < start + length; i++) {
      const common = Math.min(start + length, row.start[i] + row.length[i]) - Math.max(start, row.start[i]);
      if (common > most) { most = common; inside = i; }
    }
    picked = best;
    const about = inside === NONE ? [data.tracks[row.track] + " between calls", "rank " + row.rank + ", " + row.title] : describe(slice(row, inside));
    byId("timeline-picked").textContent = ["on the critical path for " + text(length * data.tick_ns, "ns"), ...about].join("  \u00b7  ");
    draw();
  }
  function filter() {
    const wanted = byId("timeline-filter").value.trim().toLowerCase(), kind = byId("timeline-class").value;
    matches = null;
    byId("timeline-count").textContent = "";
    if (wanted || kind) {
      matches = Uint8Array.from(data.facets, (facets, subject) => Number(
        (!kind || facet(subject, CLASS) === kind) &&
        (!wanted || [NAME, OPERATOR, BLOCK].some((which) => facet(subject, which).toLowerCase().includes(wanted)))));
      let count = 0, ticks = 0;
      for (const row of shown) {
        // Reasons name operations too; they are counted where they are asked for.
        if (row.title !== (chosen.title || titles[0]) || (row.track === IDLE_TRACK) !== kind.startsWith(IDLE_CLASS)) continue;
        for (let i = 0; i < row.start.length; i++) if (isMatch(row, i)) { count++; ticks += row.length[i]; }
      }
      byId("timeline-count").textContent = count.toLocaleString("en") + " found, " + text(ticks * data.tick_ns, "ns") + " " + (chosen.title || titles[0]);
    }
    draw();
  }

  // 6. what the reader does
  let dragged = null;
  canvas.addEventListener("pointerdown", (event) => {
    const [x, y] = place(event);
    dragged = { x, from, isSpan: y < TOP - 4 || event.shiftKey, tick: tickAt(x), hasMoved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x] = place(event);
    pointer = tickAt(x);
    if (dragged === null) { showTip(event); return; }
    if (Math.abs(x - dragged.x) > 3) dragged.hasMoved = true;
    tip.hidden = true;
    if (!dragged.hasMoved) return;
    if (dragged.isSpan) { mark(Math.min(dragged.tick, pointer), Math.max(dragged.tick, pointer)); return; }
    view(dragged.from - (x - dragged.x) / (box.clientWidth - left) * (to - from), to - from);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (dragged === null) return;
    const { hasMoved, isSpan, tick } = dragged;
    dragged = null;
    const [x, y] = place(event);
    if (hasMoved && isSpan) { tellStretch(tick, tickAt(x)); return; }
    if (!hasMoved) pick(sliceAt(x, y));
  });
  canvas.addEventListener("pointercancel", () => { dragged = null; });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; pointer = null; });
  canvas.addEventListener("dblclick", (event) => zoom(event.shiftKey ? 3 : 1 / 3, tickAt(place(event)[0])));
  canvas.addEventListener("wheel", (event) => {
    const isSideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (!isSideways && !event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
    event.preventDefault();
    if (isSideways) view(from + (event.deltaX || event.deltaY) / (box.clientWidth - left) * (to - from), to - from);
    else zoom(Math.exp(event.deltaY / 300), tickAt(place(event)[0]));
  }, { passive: false });
  const KEYS = {
    ArrowLeft: () => view(from - (to - from) / 8, to - from),
    ArrowRight: () => view(from + (to - from) / 8, to - from),
    "+": () => zoom(1 / 2), "=": () => zoom(1 / 2), "-": () => zoom(2),
    Home: () => view(0, full), "0": () => view(0, full),
    n: () => pickBeside(1), p: () => pickBeside(-1),
    w: () => zoom(1 / 1.5, pointer ?? undefined), s: () => zoom(1.5, pointer ?? undefined),
    a: () => view(from - (to - from) / 8, to - from), d: () => view(from + (to - from) / 8, to - from),
    Enter: zoomToChosen,
    Escape: () => { tip.hidden = true; stretch = null; delete box.dataset.stretch; pick(null); },
  };
  canvas.addEventListener("keydown", (event) => {
    const act = KEYS[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });
  const ACTS = {
    in: () => zoom(1 / 2), out: () => zoom(2), all: () => view(0, full),
    next: () => pickBeside(1), previous: () => pickBeside(-1),
    path: () => { isPathShown = !isPathShown; byId("timeline-path").setAttribute("aria-pressed", String(isPathShown)); draw(); },
  };
  box.querySelector(".timeline-tools").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) ACTS[button.dataset.act]();
  });
  byId("timeline-filter").addEventListener("input", filter);
  byId("timeline-filter").addEventListener("keydown", (event) => { if (event.key === "Enter") pickBeside(event.shiftKey ? -1 : 1); });
  byId("timeline-class").addEventListener("change", filter);
  for (const what of ["rank", "title"]) {
    byId("timeline-" + what).addEventListener("change", (event) => {
      chosen[what] = event.target.value;
      if (picked && !rows.includes(picked.row)) picked = null;
      layOut();
      filter();
    });
  }
  const mapTick = (event) => (place(event)[0] - left) / (box.clientWidth - left) * full;
  map.addEventListener("pointerdown", (event) => {
    map.setPointerCapture(event.pointerId);
    view(mapTick(event) - (to - from) / 2, to - from);
  });
  map.addEventListener("pointermove", (event) => {
    if (event.buttons & 1) view(mapTick(event) - (to - from) / 2, to - from);
  });

  // 7. once
  function fill(id, values) {
    for (const value of values) byId(id).append(new Option(value, value));
  }
  const key = (name, word) => {
    const part = document.createElement("span"), patch = document.createElement("i");
    patch.className = "key c-" + name;
    part.append(patch, word);
    return part;
  };
  function legend() {
    const seen = new Map();
    for (const kind of data.kinds_shown) {
      const name = KIND_COLOURS[kind];
      seen.set(name, seen.has(name) ? seen.get(name) + ", " + data.kinds[kind] : data.kinds[kind]);
    }
    const parts = [...seen].map(([name, word]) => key(name, word));
    if (hasPath) parts.push(key("path", "critical path"));
    byId("timeline-legend").replaceChildren(...parts);
  }
  function notes() {
    const few = data.num_frames_left_out;
    const found = ["Upright lines mark where steps begin."];
    if (data.num_ranks_left_out) found.push(data.ranks.length + " ranks of " + (data.ranks.length + data.num_ranks_left_out) + " are drawn, those with the most on the critical path and the lowest; the others are in the Perfetto file (foretrace replay --trace).");
    if (data.tick_ns > 1) found.push("Neighbours closer than " + text(data.tick_ns, "ns") + " are drawn as one.");
    if (few) found.push(few.toLocaleString("en") + " operators and functions of at most " + text(data.longest_left_out_ns, "ns") + " are left out.");
    byId("timeline-note").textContent = found.join(" ");
  }
  const classes = new Set(data.facets.map((facets) => facets[CLASS]).filter((at) => at >= 0).map((at) => data.texts[at]));
  fill("timeline-class", [...classes].sort());
  fill("timeline-rank", data.ranks.map(String));
  fill("timeline-title", titles);
  byId("timeline-title").value = chosen.title;
  document.addEventListener("twinschange", () => {
    chosen.title = byId("timeline-title").value = page.hasTwins() ? "" : titles[0];
    layOut();
    filter();
  });
  if (titles.length < 2) byId("timeline-title").parentElement.style.display = "none";
  byId("timeline-path").hidden = !hasPath;
  byId("timeline-path").setAttribute("aria-pressed", String(isPathShown));
  legend();
  notes();
  const redraw = () => { readPalette(); layOut(); drawNow(); };
  for (const [target, name] of [[document, "themechange"], [window, "beforeprint"], [window, "afterprint"]]) target.addEventListener(name, redraw);
  let width = box.clientWidth;
  new ResizeObserver(() => { if (box.clientWidth !== width) { width = box.clientWidth; layOut(); draw(); } }).observe(box);
  box.dataset.full = full;
  redraw();
  view(0, full);
  box.dataset.ready = "yes";
})();
