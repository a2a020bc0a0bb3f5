"use strict";
(() => {
  const { charts, samples } = JSON.parse(document.getElementById("payload").textContent);
  const root = document.documentElement;
  const toggle = document.getElementById("theme");
  const tip = document.getElementById("tip");
  const plots = [...document.querySelectorAll(".plot")];
  const PAPER = 620;
  const config = {
    responsive: true, displaylogo: false, scrollZoom: false, showSendToCloud: false,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
  };

  function hasWebGL() {
    const context = document.createElement("canvas").getContext("webgl");
    context?.getExtension("WEBGL_lose_context")?.loseContext();
    return context !== null;
  }
  const drawnByGPU = ({ data }) => data.some((trace) => trace.type === "scattergl");
  if (charts.flat().some(drawnByGPU) && !hasWebGL()) {
    for (const { data } of charts.flat()) {
      for (const trace of data) trace.type = trace.type.replace("scattergl", "scatter");
    }
  }

  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () =>
    root.classList.contains("dark") || (prefersDark.matches && !root.classList.contains("light"));
  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  function themed(layout) {
    const copy = structuredClone(layout);
    copy.paper_bgcolor = copy.plot_bgcolor = "rgba(0,0,0,0)";
    copy.font = { color: colour("--ink"), family: getComputedStyle(document.body).fontFamily, size: 13 };
    copy.hoverlabel = {
      bgcolor: colour("--card"), bordercolor: colour("--line"), font: { color: colour("--ink") },
    };
    copy.modebar = {
      bgcolor: "rgba(0,0,0,0)", color: colour("--soft"), activecolor: colour("--accent"),
    };
    for (const axis of ["xaxis", "yaxis"]) {
      Object.assign(copy[axis], { gridcolor: colour("--grid"), linecolor: colour("--line") });
    }
    return copy;
  }

  function draw(plot, width) {
    const { data, layout } = charts[plot.dataset.chart][plot.dataset.option || 0];
    return Plotly.react(plot, data, { ...themed(layout), width }, config);
  }

  function setTheme() {
    toggle.textContent = isDark() ? "Light" : "Dark";
    toggle.setAttribute("aria-pressed", String(isDark()));
    for (const plot of plots) if (plot.data) draw(plot);
  }
  toggle.addEventListener("click", () => {
    const dark = !isDark();
    root.classList.toggle("dark", dark);
    root.classList.toggle("light", !dark);
    setTheme();
  });
  prefersDark.addEventListener("change", setTheme);

  // The print style sheet is not in force yet when charts are drawn for it: they are told both the
  // theme and the width of paper.
  let classBefore = "";
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details")) details.open = true;
    classBefore = root.className;
    root.className = "light";
    for (const plot of plots) draw(plot, plot.closest(".row") ? PAPER / 2 - 30 : PAPER);
  });
  addEventListener("afterprint", () => {
    root.className = classBefore;
    setTheme();
  });

  const sheets = {};
  const loading = Object.entries(samples ? samples.sheets : {}).map(([view, sheet]) => {
    const image = new Image();
    image.src = sheet.source;
    sheets[view] = { ...sheet, image };
    return image.decode();
  });

  function paint(canvas, view, row) {
    const { image, columns, width, height } = sheets[view];
    canvas.width = width;
    canvas.height = height;
    canvas.getContext("2d").drawImage(
      image, (row % columns) * width, Math.floor(row / columns) * height, width, height,
      0, 0, width, height,
    );
    canvas.dataset.row = row;
  }

  function showTip(event) {
    const point = event.points[0];
    const row = point.customdata;
    const pictures = tip.querySelector(".pictures");
    pictures.replaceChildren(...Object.keys(sheets).map((view) => {
      const canvas = document.createElement("canvas");
      paint(canvas, view, row);
      return canvas;
    }));
    const words = [samples.names[row]];
    if (samples.labels) words.push(`class ${samples.labels[row]}`);
    if (samples.captions) words.push(samples.captions[row]);
    tip.querySelector(".words").textContent = words.join("\n");
    tip.hidden = false;
    const { clientX: x, clientY: y } = event.event;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, x + 16 + width > innerWidth ? x - width - 16 : x + 16)}px`;
    tip.style.top = `${Math.max(4, Math.min(y + 16, innerHeight - height - 4))}px`;
  }

  function sortBy(header) {
    const table = header.closest("table");
    const column = header.cellIndex;
    const ascending = header.getAttribute("aria-sort") !== "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    const key = (row) => row.cells[column].dataset.key;
    const rows = [...table.tBodies[0].rows];
    const numeric = rows.every((row) => key(row) === "" || !Number.isNaN(Number(key(row))));
    rows.sort((a, b) => {
      const [p, q] = [key(a), key(b)];
      if ((p === "") !== (q === "")) return p === "" ? 1 : -1;
      const order = numeric ? p - q : p.localeCompare(q);
      return ascending ? order : -order;
    });
    table.tBodies[0].append(...rows);
  }
  for (const header of document.querySelectorAll("table.sortable thead th")) {
    header.firstElementChild.addEventListener("click", () => sortBy(header));
  }

  for (const select of document.querySelectorAll("select[data-for]")) {
    select.addEventListener("change", () => {
      const plot = plots[select.dataset.for];
      plot.dataset.option = select.value;
      draw(plot);
    });
  }

  async function start() {
    setTheme();
    for (const plot of plots) {
      if (plot.getBoundingClientRect().top > innerHeight) root.dataset.ready ??= "visible";
      await draw(plot);
      if (plot.dataset.samples) {
        plot.on("plotly_hover", showTip);
        plot.on("plotly_click", showTip);
        plot.on("plotly_unhover", () => { tip.hidden = true; });
      }
      await new Promise((resume) => setTimeout(resume));
    }
    await Promise.all(loading);
    for (const canvas of document.querySelectorAll("canvas.thumb")) {
      paint(canvas, canvas.dataset.view, Number(canvas.dataset.row));
    }
    root.dataset.ready = "all";
  }
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
  start();
})();
