(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("strip-data").textContent);
  const canvas = document.getElementById("strip-canvas");
  const tip = document.getElementById("strip-tip");
  const box = document.getElementById("strip");
  const pen = canvas.getContext("2d");
  // Few ranks get taller rows.
  const numRanks = new Set(data.rows.map((row) => row.rank)).size;
  const ROW = numRanks <= 2 ? 16 : numRanks <= 4 ? 12 : 9;
  const LEFT = 148, TOP = 24, TRACK_GAP = 5, RANK_GAP = 14;

  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const words = (text, Kind) => {
    const raw = bytes(text);
    return new Kind(raw.buffer, 0, raw.length / Kind.BYTES_PER_ELEMENT);
  };
  const rows = data.rows.map((row) => ({
    rank: row.rank, track: row.track, title: row.title,
    start: words(row.start, Uint32Array), length: words(row.length, Uint32Array),
    kind: bytes(row.kind), name: words(row.name, Int32Array), marks: row.marks,
  }));
  // Lanes of a track overlap, so the latest end so far is what a binary search may trust.
  for (const row of rows) {
    row.latest = new Float64Array(row.start.length);
    let latest = 0;
    for (let i = 0; i < row.start.length; i++) {
      latest = Math.max(latest, row.start[i] + row.length[i]);
      row.latest[i] = latest;
    }
  }
  // A track that no rank uses takes no room.
  const isUsed = data.tracks.map((_, track) => rows.some((row) => row.track === track && row.start.length));
  const shown = rows.filter((row) => isUsed[row.track]);
  let y = TOP;
  shown.forEach((row, i) => {
    const before = shown[i - 1];
    if (before && before.rank !== row.rank) y += RANK_GAP;
    else if (before && before.track !== row.track) y += TRACK_GAP;
    row.y = y;
    y += ROW;
  });
  const height = y + 6;
  const full = Math.max(1, data.window_ns / data.tick_ns);
  let from = 0, to = full;

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  let palette = {};
  function readPalette() {
    palette = {
      ink: colour("--ink"), dim: colour("--dim"), line: colour("--line"), tint: colour("--tint"),
      kinds: ["--host", "--compute", "--compute", "--copy", "--wait", "--comm"].map(colour),
    };
  }
  const lengthText = (ns) => {
    if (ns === 0) return "0";
    for (const [unit, name] of [[1e9, "s"], [1e6, "ms"], [1e3, "us"]]) {
      if (Math.abs(ns) >= unit) return (ns / unit).toPrecision(4).replace(/\.?0+$/, (z) => z.includes(".") ? "" : z) + " " + name;
    }
    return Math.round(ns) + " ns";
  };
  function firstAfter(row, tick) {
    let low = 0, high = row.latest.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (row.latest[middle] > tick) high = middle; else low = middle + 1;
    }
    return low;
  }
  function draw() {
    const width = box.clientWidth, scale = window.devicePixelRatio || 1;
    canvas.width = width * scale;
    canvas.height = height * scale;
    canvas.style.height = height + "px";
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    const perTick = (width - LEFT) / (to - from);
    drawAxis(width, perTick);
    for (const row of shown) {
      pen.fillStyle = palette.tint;
      pen.fillRect(LEFT, row.y, width - LEFT, ROW - 1);
      for (let i = firstAfter(row, from); i < row.start.length && row.start[i] < to; i++) {
        const x0 = Math.max(LEFT, LEFT + (row.start[i] - from) * perTick);
        const x1 = Math.min(width, LEFT + (row.start[i] + row.length[i] - from) * perTick);
        if (x1 < LEFT) continue;
        pen.fillStyle = palette.kinds[row.kind[i]];
        pen.fillRect(x0, row.y, Math.max(x1 - x0 - (x1 - x0 > 4 ? 0.6 : 0), 0.35), ROW - 1);
      }
    }
    drawMarks(width, perTick);
    drawLabels();
  }
  function drawMarks(width, perTick) {
    pen.fillStyle = palette.ink;
    for (const row of shown) {
      for (const mark of row.marks) {
        const x = LEFT + (mark - from) * perTick;
        if (x >= LEFT && x < width) pen.fillRect(x, row.y - 1, 1.2, ROW + 1);
      }
    }
  }
  function drawAxis(width, perTick) {
    const spanNs = (to - from) * data.tick_ns;
    let stepNs = Math.pow(10, Math.floor(Math.log10(spanNs / 5)));
    for (const factor of [5, 2]) if (spanNs / (stepNs * factor) >= 5) { stepNs *= factor; break; }
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    pen.textAlign = "left";
    for (let ns = Math.ceil(from * data.tick_ns / stepNs) * stepNs; ns < to * data.tick_ns; ns += stepNs) {
      const x = LEFT + (ns / data.tick_ns - from) * perTick;
      pen.fillStyle = palette.line;
      pen.fillRect(x, TOP - 8, 1, height - TOP + 2);
      pen.fillStyle = palette.dim;
      if (x < width - 50) pen.fillText(lengthText(ns), x + 3, 9);
    }
  }
  function drawLabels() {
    pen.textBaseline = "middle";
    shown.forEach((row, i) => {
      const before = shown[i - 1];
      if (!before || before.rank !== row.rank) {
        pen.fillStyle = palette.ink;
        pen.font = "600 12px system-ui, sans-serif";
        pen.textAlign = "left";
        pen.fillText("rank " + row.rank, 0, row.y + ROW);
      }
      if (!before || before.rank !== row.rank || before.track !== row.track) {
        pen.fillStyle = palette.dim;
        pen.font = "11px system-ui, sans-serif";
        pen.textAlign = "right";
        pen.fillText(data.tracks[row.track], LEFT - 8, row.y + ROW);
      }
    });
  }
  function zoom(factor, at) {
    const centre = at === undefined ? (from + to) / 2 : at;
    const span = Math.min(full, Math.max(20, (to - from) * factor));
    const share = (centre - from) / (to - from);
    from = Math.min(Math.max(0, centre - share * span), full - span);
    to = from + span;
    draw();
  }
  const tickAt = (x) => from + (x - LEFT) / (box.clientWidth - LEFT) * (to - from);
  function place(event) {
    const area = canvas.getBoundingClientRect();
    return [event.clientX - area.left, event.clientY - area.top];
  }
  function sliceAt(x, atY) {
    const row = shown.find((one) => atY >= one.y && atY < one.y + ROW);
    if (!row || x < LEFT) return null;
    const tick = tickAt(x), slack = (to - from) / (box.clientWidth - LEFT);
    let best = null;
    for (let i = firstAfter(row, tick - slack); i < row.start.length && row.start[i] <= tick + slack; i++) {
      const inside = row.start[i] - slack <= tick && tick <= row.start[i] + row.length[i] + slack;
      if (inside && (best === null || row.length[i] < row.length[best])) best = i;
    }
    return best === null ? null : [row, best];
  }
  function showTip(event) {
    const [x, atY] = place(event);
    const found = sliceAt(x, atY);
    tip.hidden = found === null;
    if (found === null) return;
    const [row, i] = found;
    const kind = data.kinds[row.kind[i]];
    const isPart = data.tracks[row.track] === "communication";
    const name = row.name[i] >= 0 ? data.names[row.name[i]] : isPart ? kind : "several, " + kind;
    tip.textContent = name + "  " + lengthText(row.length[i] * data.tick_ns) + " at " + lengthText(row.start[i] * data.tick_ns) + "  (rank " + row.rank + ", " + row.title + ")";
    const place_x = Math.min(x + 14, box.clientWidth - tip.offsetWidth - 4);
    tip.style.left = Math.max(0, place_x) + "px";
    tip.style.top = canvas.offsetTop + atY + 16 + "px";
  }
  let dragged = null;
  canvas.addEventListener("pointerdown", (event) => {
    dragged = [place(event)[0], from];
    canvas.setPointerCapture(event.pointerId);
    canvas.style.cursor = "grabbing";
  });
  canvas.addEventListener("pointerup", () => { dragged = null; canvas.style.cursor = "grab"; });
  canvas.addEventListener("pointermove", (event) => {
    if (dragged === null) { showTip(event); return; }
    const span = to - from;
    const moved = (place(event)[0] - dragged[0]) / (box.clientWidth - LEFT) * span;
    from = Math.min(Math.max(0, dragged[1] - moved), full - span);
    to = from + span;
    tip.hidden = true;
    draw();
  });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  canvas.addEventListener("dblclick", (event) => zoom(event.shiftKey ? 3 : 1 / 3, tickAt(place(event)[0])));
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(Math.exp(event.deltaY / 300), tickAt(place(event)[0]));
  }, { passive: false });
  box.querySelector(".strip-tools").addEventListener("click", (event) => {
    const act = event.target.dataset.act;
    if (act === "in") zoom(1 / 2);
    if (act === "out") zoom(2);
    if (act === "all") { from = 0; to = full; draw(); }
  });
  const note = [];
  note.push("Upright lines mark where steps begin.");
  if (data.num_ranks_left_out) note.push(data.num_ranks_left_out + " more ranks are in the Perfetto file (foretrace replay --trace).");
  if (data.tick_ns > 1) note.push("Neighbours closer than " + lengthText(data.tick_ns) + " are drawn as one.");
  document.getElementById("strip-note").textContent = note.join(" ");
  const redraw = () => { readPalette(); draw(); };
  window.addEventListener("resize", draw);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  window.addEventListener("beforeprint", redraw);
  redraw();
})();
