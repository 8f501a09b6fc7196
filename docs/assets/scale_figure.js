// The figure of "Scale and zero point": a range, a grid, one value, and what the grid makes of it. No library, no network.
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const GRIDS = {
    "uint, any zero point": { signed: false, symmetric: false },
    "int, zero point 0": { signed: true, symmetric: true },
    "int, any zero point": { signed: true, symmetric: false },
  };
  const CONTROLS = [
    ["low", "Lowest value", -4, 0, 0.05, -1],
    ["high", "Highest value", 0, 4, 0.05, 3],
    ["bits", "Bits", 2, 8, 1, 4],
    ["x", "A value x", -4, 4, 0.01, 1.23],
  ];

  const even = (value) => {
    const floor = Math.floor(value);
    const rest = value - floor;
    return rest < 0.5 || (rest === 0.5 && floor % 2 === 0) ? floor : floor + 1;
  };

  // The same arithmetic as qdq.numerics.qparams_from_range, quantize and dequantize.
  const encode = ({ low, high, bits, x, signed, symmetric }) => {
    const levels = 2 ** bits;
    const qmin = signed ? -levels / 2 : 0;
    const qmax = qmin + levels - 1;
    const width = symmetric ? Math.max(-low, high) : high - low;
    const scale = width > 0 ? width / (symmetric ? levels / 2 - 1 : levels - 1) : 2 ** -10;
    const lifted = Math.min(Math.max(Math.floor(-low / scale + 0.5), 0), levels - 1);
    const zero = symmetric ? 0 : lifted + (signed ? qmin : 0);
    const q = Math.min(Math.max(even(x / scale) + zero, qmin), qmax);
    return { qmin, qmax, scale, zero, q, y: (q - zero) * scale };
  };

  const draw = (svg, settings, made) => {
    const at = (value) => 20 + ((value + 4.6) / 9.2) * 600;
    const line = (x1, y1, x2, y2, name) => {
      const found = document.createElementNS(SVG, "line");
      Object.entries({ x1, y1, x2, y2, class: name }).forEach(([key, value]) => found.setAttribute(key, value));
      svg.append(found);
    };
    const text = (x, y, words, name) => {
      const found = document.createElementNS(SVG, "text");
      Object.entries({ x, y, class: name, "text-anchor": "middle" }).forEach(([key, value]) => found.setAttribute(key, value));
      found.textContent = words;
      svg.append(found);
    };
    svg.replaceChildren();
    line(20, 80, 620, 80, "axis");
    for (let value = -4; value <= 4; value += 1) {
      line(at(value), 76, at(value), 84, "axis");
      text(at(value), 102, String(value), "label");
    }
    line(at(settings.low), 58, at(settings.high), 58, "range");
    text(at((settings.low + settings.high) / 2), 44, "range", "range");
    for (let q = made.qmin; q <= made.qmax; q += 1) {
      const value = (q - made.zero) * made.scale;
      if (Math.abs(value) <= 4.6) line(at(value), 66, at(value), 80, q === made.zero ? "zero" : "level");
    }
    line(at(settings.x), 112, at(made.y), 84, "error");
    text(at(settings.x), 126, `x = ${settings.x.toFixed(2)}`, "value");
    line(at(made.y), 62, at(made.y), 84, "chosen");
    text(at(made.y), 20, `y = ${made.y.toFixed(3)}`, "value");
    line(at(made.y), 25, at(made.y), 62, "error");
  };

  const build = (host) => {
    const form = document.createElement("form");
    const svg = document.createElementNS(SVG, "svg");
    const words = document.createElement("output");
    svg.setAttribute("viewBox", "0 0 640 135");
    svg.setAttribute("role", "img");
    words.setAttribute("aria-live", "polite");
    const state = Object.fromEntries(CONTROLS.map(([name, , , , , value]) => [name, value]));
    Object.assign(state, Object.values(GRIDS)[0]);

    const update = () => {
      const made = encode(state);
      draw(svg, state, made);
      const step = made.scale.toPrecision(4);
      words.textContent =
        `scale ${step}, zero point ${made.zero}; integers ${made.qmin} to ${made.qmax} stand for ` +
        `${((made.qmin - made.zero) * made.scale).toFixed(3)} to ${((made.qmax - made.zero) * made.scale).toFixed(3)}. ` +
        `x = ${state.x.toFixed(2)} becomes q = ${made.q}, which is y = ${made.y.toFixed(3)}: ` +
        `${(Math.abs(made.y - state.x) / made.scale).toFixed(2)} steps away` +
        (Math.abs(made.y - state.x) > made.scale * 0.501 ? ", because it is cut off." : ".");
      svg.setAttribute("aria-label", words.textContent);
    };

    const choice = document.createElement("select");
    Object.keys(GRIDS).forEach((name) => choice.add(new Option(name)));
    choice.addEventListener("change", () => {
      Object.assign(state, GRIDS[choice.value]);
      update();
    });
    const labelled = (title, input, shown) => {
      const label = document.createElement("label");
      const name = document.createElement("span");
      name.textContent = title;
      label.append(name, input, shown);
      form.append(label);
    };
    labelled("Grid", choice, "");
    CONTROLS.forEach(([name, title, min, max, step, value]) => {
      const input = document.createElement("input");
      const shown = document.createElement("span");
      Object.assign(input, { type: "range", min, max, step, value });
      shown.textContent = value;
      input.addEventListener("input", () => {
        state[name] = Number(input.value);
        shown.textContent = input.value;
        update();
      });
      labelled(title, input, shown);
    });
    form.addEventListener("submit", (event) => event.preventDefault());
    host.replaceChildren(form, svg, words);
    update();
  };

  document.querySelectorAll(".scale-figure").forEach(build);
})();
