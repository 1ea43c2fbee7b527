// What the page's scripts share: its data, its colours, numbers as text; and downloads.
const page = (() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);

  // Colours are `light-dark()` values of the style; a probe tells what they are just now.
  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  function colour(name) {
    probe.style.color = "var(--" + name + ")";
    return getComputedStyle(probe).color;
  }

  const digits = (value) => {
    const size = Math.abs(value);
    if (value === 0) return "0";
    if (size >= 100) return Math.round(value).toLocaleString("en");
    if (size >= 10) return value.toFixed(1);
    return size >= 1 ? value.toFixed(2) : String(Number(value.toPrecision(3)));
  };
  const scaled = (value, scales) => {
    for (const [size, unit] of scales) if (Math.abs(value) >= size) return digits(value / size) + " " + unit;
    const [size, unit] = scales[scales.length - 1];
    return digits(value / size) + " " + unit;
  };
  const decimal = (unit) => [[1e15, "P" + unit], [1e12, "T" + unit], [1e9, "G" + unit], [1e6, "M" + unit], [1e3, "k" + unit], [1, unit]];
  const SCALES = {
    ns: [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]],
    bytes: [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]],
    flops: decimal("FLOP"),
    flops_per_s: decimal("FLOP/s"),
    bytes_per_s: decimal("B/s"),
  };
  SCALES.signed_ns = SCALES.signed_ms = SCALES.ms = SCALES.ns;
  function text(value, unit) {
    if (value === null || value === undefined) return "";
    if (typeof value === "string") return value;
    if (unit === "identifier") return String(value);
    if (unit === "rank") return value < 0 ? "not recorded" : "rank " + value;
    if (unit === "flag") return value ? "yes" : "no";
    if (unit === "share" || unit === "signed_share") return text(100 * value, unit.replace("share", "percent"));
    if (unit.endsWith("_per_ns")) return text(1e9 * value, unit.replace("_ns", "_s"));
    if (unit === "percent" || unit === "signed_percent") return (unit === "signed_percent" && value > 0 ? "+" : "") + digits(value) + " %";
    if (unit === "flops_per_byte") return digits(value) + " FLOP/B";
    if (value === 0) return "0";
    const sign = unit.startsWith("signed_") && value > 0 ? "+" : "";
    return SCALES[unit] ? sign + scaled(value, SCALES[unit]) : digits(value);
  }

  function save(name, type, content) {
    const url = URL.createObjectURL(new Blob([content], { type }));
    const link = document.createElement("a");
    link.href = url;
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }
  const quoted = (value) => {
    const cell = value === null ? "" : String(value);
    return /[",\r\n]/.test(cell) ? '"' + cell.replaceAll('"', '""') + '"' : cell;
  };
  const fileName = (key, ending) => (data.title.replace(/[^\w.-]+/g, "-").slice(0, 60).replace(/^-+|-+$/g, "") || "report") + "-" + key + ending;
  const actions = {
    csv(key, table) {
      const lines = [table.columns.map((column) => column.key), ...table.rows];
      save(fileName(key, ".csv"), "text/csv", lines.map((line) => line.map(quoted).join(",")).join("\r\n") + "\r\n");
    },
    json(key, table) {
      const keys = table.columns.map((column) => column.key);
      const rows = table.rows.map((row) => Object.fromEntries(row.map((cell, i) => [keys[i], cell])));
      save(fileName(key, ".json"), "application/json", JSON.stringify(rows, null, 1) + "\n");
    },
    copy(key, table, button) {
      const cell = (value) => String(value ?? "").replace(/[\t\r\n]+/g, " ");
      const lines = [table.columns.map((column) => column.key), ...table.rows];
      const done = (word) => { button.textContent = word; setTimeout(() => { button.textContent = "copy"; }, 1200); };
      copyText(lines.map((line) => line.map(cell).join("\t")).join("\n")).then(() => done("copied"), () => done("no access"));
    },
  };
  async function copyText(content) {
    if (navigator.clipboard) {
      try { await navigator.clipboard.writeText(content); return; } catch { /* refused for files: the old way */ }
    }
    const area = document.createElement("textarea");
    area.value = content;
    document.body.append(area);
    area.select();
    const isCopied = document.execCommand("copy");
    area.remove();
    if (!isCopied) throw new Error("the browser does not let this page copy");
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest("figure[data-table] .tools button");
    if (!button) return;
    const key = button.closest("figure").dataset.table;
    actions[button.dataset.act](key, data.tables[key], button);
  });

  // What stands beside what was measured is drawn where a reader asks for it.
  const twins = document.getElementById("twins");
  let hasTwins = !data.twin;
  if (twins) {
    twins.addEventListener("click", () => {
      hasTwins = !hasTwins;
      twins.setAttribute("aria-pressed", String(hasTwins));
      document.dispatchEvent(new Event("twinschange"));
    });
  }

  // The list of sections on a narrow screen, and sections that are folded.
  const menu = document.getElementById("menu");
  function unfold(open) {
    menu.parentElement.parentElement.classList.toggle("open", open);
    menu.setAttribute("aria-expanded", String(open));
  }
  menu.addEventListener("click", () => unfold(menu.getAttribute("aria-expanded") === "false"));
  document.getElementById("sections").addEventListener("click", () => unfold(false));
  const folds = [...document.querySelectorAll("details.fold")];
  function openTarget() {
    const fold = document.getElementById(location.hash.slice(1))?.querySelector("details.fold");
    if (fold) fold.open = true;
  }
  addEventListener("hashchange", openTarget);
  openTarget();
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = folds.filter((fold) => !fold.open);
    for (const fold of closed) fold.open = true;
  });
  addEventListener("afterprint", () => { for (const fold of closed) fold.open = false; });

  return { data, colour, text, hasTwins: () => hasTwins };
})();
