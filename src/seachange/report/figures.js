// Figures over time: hovering or touching shows values; dragging, pinching, keys and buttons zoom.
"use strict";
(() => {
  const DAY = 86400, LEAST = 4; // fewest intervals shown when zoomed in
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const tip = document.querySelector(".tip");
  const minus = (text) => text.replace("-", "−");
  const number = (value, decimals) =>
    minus(value.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals }));
  const two = (value) => String(value).padStart(2, "0");

  function moment(kind, value, width) {
    if (kind !== "date") return `${kind === "seconds" ? "second" : kind} ${number(value, width < 20 ? 1 : 0)}`;
    const time = new Date(1000 * value), day = time.toISOString().slice(0, 10);
    if (width > 60 * DAY) return day;
    return `${day} ${two(time.getUTCHours())}:${two(time.getUTCMinutes())}${width < 300 ? ":" + two(time.getUTCSeconds()) : ""}`;
  }

  function roundTicks(low, high, most) {
    const rough = (high - low) / most, size = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * size).find((each) => each >= rough * (1 - 1e-9));
    const decimals = Math.max(-Math.floor(Math.log10(step) + 1e-9), 0), found = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high * (1 + 1e-12); i++) found.push([i * step, number(i * step + 0, decimals)]);
    return found;
  }

  function timeTicks(kind, low, high, most) {
    if (kind !== "date") return roundTicks(low, high, most);
    const steps = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 10800, 21600, 43200, DAY, 2 * DAY, 7 * DAY, 14 * DAY];
    const step = steps.find((each) => (high - low) / each <= most), found = [];
    const month = (time) => time.toLocaleString("en", { month: "short", timeZone: "UTC" });
    if (step === undefined) {
      const count = (value) => { const time = new Date(1000 * value); return 12 * time.getUTCFullYear() + time.getUTCMonth(); };
      const months = [1, 2, 3, 6, 12, 24, 60, 120].find((each) => (count(high) - count(low)) / each <= most) || 120;
      for (let i = Math.ceil(count(low) / months) * months; i <= count(high); i += months) {
        const time = new Date(Date.UTC(Math.floor(i / 12), i % 12)), value = time / 1000;
        const label = months >= 12 ? String(time.getUTCFullYear()) : `${month(time)} ${time.getUTCFullYear()}`;
        if (value >= low && value <= high) found.push([value, label]);
      }
      return found;
    }
    const shift = step % (7 * DAY) ? 0 : 3 * DAY; // weeks start on Monday
    for (let i = Math.ceil((low + shift) / step); i * step - shift <= high; i++) {
      const value = i * step - shift, time = new Date(1000 * value);
      const clock = `${two(time.getUTCHours())}:${two(time.getUTCMinutes())}${step % 60 ? ":" + two(time.getUTCSeconds()) : ""}`;
      found.push([value, value % DAY ? clock : `${month(time)} ${time.getUTCDate()}`]);
    }
    return found;
  }

  function indexOf(edges, value) { // the interval that contains a value
    let low = 0, high = edges.length - 2;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (edges[middle] <= value) low = middle; else high = middle - 1;
    }
    return low;
  }

  const describe = {
    states(figure, value) {
      const i = indexOf(figure.edges, value), probs = figure.probs[i];
      const order = probs.map((_, j) => j).sort((a, b) => probs[b] - probs[a]);
      const lines = [moment(figure.kind, value, figure.edges[i + 1] - figure.edges[i])];
      const shown = order.filter((j, k) => k === 0 || probs[j] > 0).slice(0, 3);
      if (figure.posterior || probs.length > 1) lines.push(shown.map((j) => `state ${figure.states[j]}: ${probs[j]}%`).join(", "));
      if (figure.rewards && figure.rewards[i] !== null) lines.push(`mean reward (smoothed): ${number(figure.rewards[i], figure.decimals)}`);
      if (figure.rounds[i] > 1) lines.push(`${figure.rounds[i]} rounds`);
      return lines.join("\n");
    },
    values(figure, value) {
      const last = figure.edges[figure.edges.length - 1];
      if (value > last && figure.forecast) {
        const [mean, low, high] = figure.forecast.map((each) => number(each, figure.decimals));
        return `next period\nforecast: ${mean} (${low} to ${high})`;
      }
      const i = indexOf(figure.edges, value), width = figure.edges[i + 1] - figure.edges[i];
      const lines = [`${moment(figure.kind, figure.edges[i], width)} to ${moment(figure.kind, figure.edges[i + 1], width)}`];
      for (const each of [...figure.series].reverse()) {
        const known = each.values[i] !== null, interval = known && each.low[i] !== null;
        const text = known ? number(each.values[i], figure.decimals) : "too few rounds";
        lines.push(`${each.name}: ${text}${interval ? ` (${number(each.low[i], figure.decimals)} to ${number(each.high[i], figure.decimals)})` : ""}`);
      }
      return lines.join("\n");
    },
  };

  for (const element of document.querySelectorAll("figure.time")) {
    const name = element.dataset.figure, figure = figures[name];
    if (!figure) continue;
    const plot = element.querySelector(".plot"), svg = plot.querySelector("svg"), ticks = element.querySelector(".ticks");
    const height = svg.viewBox.baseVal.height, whole = figure.high - figure.low, least = LEAST * whole / (figure.edges.length - 1);
    const reset = element.querySelector("[data-do=reset]"), numbers = [...plot.querySelectorAll(".numbers span")];
    const cursor = plot.appendChild(Object.assign(document.createElement("div"), { className: "cursor", hidden: true }));
    const selection = plot.appendChild(Object.assign(document.createElement("div"), { className: "selection", hidden: true }));
    const pointers = new Map();
    let low = figure.low, high = figure.high, at = null, dragged = null, pinched = null;
    element.querySelector(".tools").hidden = false;

    function show(from, to) { // show this part of the axis
      const width = Math.min(Math.max(to - from, Math.min(least, whole)), whole);
      low = Math.min(Math.max((from + to - width) / 2, figure.low), figure.high - width);
      high = low + width;
      const scale = 1000 / whole;
      svg.setAttribute("viewBox", `${(low - figure.low) * scale} 0 ${width * scale} ${height}`);
      reset.disabled = width > 0.999999 * whole;
      ticks.replaceChildren(...timeTicks(figure.kind, low, high, Math.max(plot.clientWidth / 66, 2)).map(([value, label]) => {
        const tick = document.createElement("span");
        tick.textContent = label;
        tick.style.setProperty("--at", 100 * (value - low) / width);
        return tick;
      }));
      for (const each of numbers) {
        const x = figure.low + whole * each.dataset.x / 100, half = whole * each.dataset.width / 200;
        const left = Math.max(x - half, low), right = Math.min(x + half, high);
        each.hidden = (right - left) / width * plot.clientWidth < 14;
        each.style.left = `${100 * ((left + right) / 2 - low) / width}%`;
      }
      if (at !== null) point(Math.min(Math.max(at, low), high));
    }

    function point(value, near) { // show the values at a position
      at = value;
      const share = (value - low) / (high - low), box = plot.getBoundingClientRect();
      cursor.hidden = tip.hidden = false;
      cursor.style.left = `${100 * share}%`;
      tip.textContent = describe[name](figure, value);
      plot.setAttribute("aria-valuenow", Math.round(100 * (value - figure.low) / whole));
      plot.setAttribute("aria-valuetext", tip.textContent);
      const x = box.left + share * box.width, available = document.documentElement.clientWidth;
      const left = x + 14 + tip.offsetWidth < available ? x + 14 : x - 14 - tip.offsetWidth;
      tip.style.left = `${scrollX + Math.max(Math.min(left, available - tip.offsetWidth - 8), 8)}px`;
      tip.style.top = `${scrollY + (near ?? box.top + 12)}px`;
    }

    function leave() { at = null; cursor.hidden = tip.hidden = true; }
    function value(event) {
      const box = plot.getBoundingClientRect();
      return low + (high - low) * Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
    }
    function zoom(factor, around = at ?? (low + high) / 2) {
      show(around - (around - low) * factor, around + (high - around) * factor);
    }

    plot.addEventListener("pointerdown", (event) => {
      pointers.set(event.pointerId, event);
      if (pointers.size === 2) {
        const [a, b] = [...pointers.values()].map(value);
        pinched = [Math.min(a, b), Math.max(a, b)];
        dragged = null;
        selection.hidden = true;
      } else if (event.pointerType === "mouse" && event.button === 0) dragged = value(event);
      if (event.isTrusted) plot.setPointerCapture(event.pointerId);
      point(value(event), event.clientY + 18);
    });
    plot.addEventListener("pointermove", (event) => {
      if (pointers.has(event.pointerId)) pointers.set(event.pointerId, event);
      if (pinched && pointers.size === 2) { // the positions under the fingers stay under them
        const box = plot.getBoundingClientRect();
        const [a, b] = [...pointers.values()].map((each) => (each.clientX - box.left) / box.width).sort((x, y) => x - y);
        const width = (pinched[1] - pinched[0]) / Math.max(b - a, 0.02), from = pinched[0] - a * width;
        return show(from, from + width);
      }
      const here = value(event);
      if (dragged !== null) {
        const ends = [dragged, here].map((each) => 100 * (each - low) / (high - low)).sort((x, y) => x - y);
        selection.hidden = false;
        selection.style.left = `${ends[0]}%`;
        selection.style.width = `${ends[1] - ends[0]}%`;
      }
      point(here, event.clientY + 18);
    });
    function release(event) {
      pointers.delete(event.pointerId);
      if (pointers.size < 2) pinched = null;
      if (dragged !== null && event.type === "pointerup") {
        const ends = [dragged, value(event)].sort((x, y) => x - y);
        if (ends[1] - ends[0] > 0.01 * (high - low)) show(...ends);
      }
      dragged = null;
      selection.hidden = true;
    }
    plot.addEventListener("pointerup", release);
    plot.addEventListener("pointercancel", release);
    plot.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse" && dragged === null) leave(); });
    plot.addEventListener("blur", leave);
    plot.addEventListener("dblclick", () => show(figure.low, figure.high));
    plot.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.shiftKey) return; // the page scrolls
      event.preventDefault();
      const by = event.deltaY || event.deltaX;
      if (event.ctrlKey) zoom(by > 0 ? 1.25 : 0.8, value(event));
      else show(low + by / 1000 * (high - low), high + by / 1000 * (high - low));
    }, { passive: false });
    plot.addEventListener("keydown", (event) => {
      const step = (high - low) / (event.shiftKey ? 10 : 50), from = at ?? (low + high) / 2;
      const move = { ArrowRight: from + step, ArrowLeft: from - step, Home: figure.low, End: figure.high }[event.key];
      if (move !== undefined) {
        const to = Math.min(Math.max(move, figure.low), figure.high);
        if (to < low || to > high) show(to - (high - low) / 2, to + (high - low) / 2);
        point(to);
      } else if (event.key === "+" || event.key === "=") zoom(0.5);
      else if (event.key === "-") zoom(2);
      else if (event.key === "0" || event.key === "Escape") { show(figure.low, figure.high); leave(); }
      else return;
      event.preventDefault();
    });
    element.querySelector(".tools").addEventListener("click", (event) => {
      const what = event.target.dataset.do;
      if (what === "in") zoom(0.5, (low + high) / 2);
      if (what === "out") zoom(2, (low + high) / 2);
      if (what === "reset") show(figure.low, figure.high);
      leave();
    });
    new ResizeObserver(() => show(low, high)).observe(plot);
    addEventListener("beforeprint", () => { leave(); show(figure.low, figure.high); });
  }

  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const each of closed) each.open = true;
  });
  addEventListener("afterprint", () => { for (const each of closed) each.open = false; });
})();
