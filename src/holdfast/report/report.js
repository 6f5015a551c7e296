"use strict";
// Two comforts on a page that is complete without them: values under the pointer, and stepping through the rounds.
(() => {
  const SVG = "http://www.w3.org/2000/svg";

  function make(tag, className, parent) {
    const node = tag === "line" || tag === "circle" || tag === "svg"
      ? document.createElementNS(SVG, tag) : document.createElement(tag);
    node.setAttribute("class", className);
    parent.append(node);
    return node;
  }

  function place(node, attributes) {
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  }

  function readChart(svg) {
    const [left, top, right, bottom, xLow, xHigh, yLow, yHigh] = svg.dataset.frame.split(" ").map(Number);
    const [scaleX, scaleY] = ["x", "y"].map((axis) => ((svg.dataset.log || "").includes(axis) ? Math.log10 : Number));
    const share = (scale, value, low, high) => (scale(value) - scale(low)) / (scale(high) - scale(low));
    const series = [...svg.querySelectorAll("g[data-values]")].map((group) => ({
      name: group.dataset.name,
      look: [...group.querySelectorAll("path")].pop(),
      values: group.dataset.values.split(";").filter(Boolean).map((entry) => {
        const [x, y, ...text] = entry.split(" ");
        return { x: Number(x), y: Number(y), text: text.join(" ") };
      }),
    }));
    // The browser's own tooltip for <title> would cover ours; the name moves to where it is only read out.
    const title = svg.querySelector("title");
    svg.setAttribute("aria-label", `${title.textContent}. ${svg.querySelector("desc").textContent}`);
    svg.removeAttribute("aria-labelledby");
    title.remove();
    svg.setAttribute("tabindex", "0");
    return {
      svg, series, left, top, right, bottom, xLow, xHigh, axis: svg.dataset.axis,
      xs: [...new Set(series.flatMap((one) => one.values.map((value) => value.x)))].sort((a, b) => a - b),
      toX: (x) => left + share(scaleX, x, xLow, xHigh) * (right - left),
      toY: (y) => bottom - share(scaleY, y, yLow, yHigh) * (bottom - top),
      drawn: [],
    };
  }

  let charts = [];
  const tip = make("div", "tip", document.body);
  tip.hidden = true;

  function clear() {
    tip.hidden = true;
    for (const chart of charts) chart.drawn.splice(0).forEach((node) => node.remove());
  }

  function cross(chart, x) {
    const at = chart.toX(x);
    const line = make("line", "cross", chart.svg);
    place(line, { x1: at, x2: at, y1: chart.top, y2: chart.bottom });
    chart.drawn.push(line);
  }

  function show(chart, x) {
    clear();
    for (const other of charts) {
      if (other.axis === chart.axis && x >= other.xLow && x <= other.xHigh) cross(other, x);
    }
    tip.replaceChildren();
    make("div", "at", tip).textContent = `${chart.axis} ${x.toLocaleString("en")}`;
    for (const one of chart.series) {
      // A line with fewer points than its neighbours shows its latest one, and says where that was.
      const value = one.values.findLast((entry) => entry.x <= x);
      if (!value) continue;
      const row = make("div", "row", tip);
      const swatch = make("svg", "hf-chart", row);
      place(swatch, { width: 16, height: 8 });
      const stroke = make("line", one.look.getAttribute("class"), swatch);
      place(stroke, { x1: 0, x2: 16, y1: 4, y2: 4 });
      const dash = one.look.getAttribute("stroke-dasharray");
      if (dash) stroke.setAttribute("stroke-dasharray", dash);
      make("span", "", row).textContent = one.name;
      make("b", "", row).textContent = value.x === x ? value.text : `${value.text} at ${value.x.toLocaleString("en")}`;
      const colour = /\bc(\d)\b/.exec(one.look.getAttribute("class"));
      const spot = make("circle", colour ? `spot f${colour[1]}` : "spot", chart.svg);
      place(spot, { cx: chart.toX(value.x), cy: chart.toY(value.y), r: 4 });
      chart.drawn.push(spot);
    }
    putTip(chart, x);
  }

  function putTip(chart, x) {
    const box = chart.svg.getBoundingClientRect();
    const scale = box.width / chart.svg.viewBox.baseVal.width;
    tip.hidden = false;
    const at = box.left + chart.toX(x) * scale;
    const beside = at + 14 + tip.offsetWidth > document.documentElement.clientWidth - 8
      ? at - 14 - tip.offsetWidth : at + 14;
    tip.style.left = `${Math.max(8, beside)}px`;
    tip.style.top = `${Math.max(8, box.top + chart.top * scale + 6)}px`;
  }

  function nearest(chart, x) {
    return chart.xs.reduce((best, one) => (Math.abs(one - x) < Math.abs(best - x) ? one : best), chart.xs[0]);
  }

  function wire(chart) {
    if (!chart.xs.length) return;
    let current = chart.xs.length - 1;
    const point = (event) => {
      const box = chart.svg.getBoundingClientRect();
      const at = (event.clientX - box.left) * chart.svg.viewBox.baseVal.width / box.width;
      if (at < chart.left - 12 || at > chart.right + 12) return clear();
      const x = chart.xLow + (at - chart.left) / (chart.right - chart.left) * (chart.xHigh - chart.xLow);
      const found = nearest(chart, x);
      current = chart.xs.indexOf(found);
      return show(chart, found);
    };
    chart.svg.addEventListener("pointermove", point);
    chart.svg.addEventListener("pointerdown", point);
    chart.svg.addEventListener("pointerleave", clear);
    chart.svg.addEventListener("blur", clear);
    chart.svg.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!move) return;
      event.preventDefault();
      current = Math.min(chart.xs.length - 1, Math.max(0, current + move));
      show(chart, chart.xs[current]);
    });
  }

  // A page that brings in charts later says so, and those that are gone are forgotten.
  function bind() {
    clear();
    charts = charts.filter((chart) => chart.svg.isConnected);
    for (const svg of document.querySelectorAll("svg.hf-chart[data-frame]:not([tabindex])")) {
      const chart = readChart(svg);
      charts.push(chart);
      wire(chart);
    }
  }

  bind();
  document.addEventListener("holdfast:charts", bind);
  addEventListener("scroll", clear, { passive: true });

  for (const hint of document.querySelectorAll(".scripted")) hint.hidden = false;

  const stepper = document.querySelector(".stepper");
  if (stepper) {
    const slider = stepper.querySelector("input");
    const output = stepper.querySelector("output");
    const buttons = [...stepper.querySelectorAll("button")];
    const answers = [...document.querySelectorAll(".answer.after")];
    const update = () => {
      for (const answer of answers) answer.hidden = answer.dataset.moment !== slider.value;
      output.textContent = answers.find((answer) => answer.dataset.moment === slider.value).dataset.label;
      for (const button of buttons) {
        const next = Number(slider.value) + Number(button.dataset.move);
        button.disabled = next < Number(slider.min) || next > Number(slider.max);
      }
    };
    for (const button of buttons) {
      button.addEventListener("click", () => {
        slider.value = String(Number(slider.value) + Number(button.dataset.move));
        update();
      });
    }
    slider.addEventListener("input", update);
    stepper.hidden = false;
    update();
  }
})();
