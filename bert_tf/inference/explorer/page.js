"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const state = new URLSearchParams(location.hash.slice(1));
  const panels = [];
  // The same head in both texts, so that they can be compared. Past the last one is their mean.
  const head = { layer: Number(state.get("layer")) || 0, head: Number(state.get("head")) || 0 };
  const MASK = "[MASK]";
  const SHOWN = 0.02; // fainter lines would only be a haze
  const BLUE = [43, 134, 209]; // legible on light and dark
  const percent = (share) => `${(100 * share).toFixed(1)}%`;
  // Keeps right-to-left tokens from turning the rest of a sentence around.
  const isolated = (token) => `\u2068${token}\u2069`;
  const isAt = (place, side, index) => place?.side === side && place.index === index;
  const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

  // All text reaches the page through here, and so never as HTML.
  function element(name, text = "", className = "") {
    const made = document.createElement(name);
    made.textContent = text;
    made.className = className;
    return made;
  }

  function bars(found) {
    const list = element("ol", "", "words");
    list.append(...found.map(({ token, probability }) => {
      const item = element("li");
      const bar = element("span", "", "bar");
      bar.setAttribute("aria-hidden", "true");
      bar.append(element("span"));
      bar.firstChild.style.width = percent(probability);
      item.append(element("bdi", token), bar, element("span", percent(probability), "number"));
      return item;
    }));
    return list;
  }

  class Panel {
    constructor(name) {
      const copy = document.getElementById("panel").content.cloneNode(true);
      this.root = copy.querySelector("article");
      this.root.setAttribute("aria-label", name);
      this.find = (selector) => this.root.querySelector(selector);
      for (const label of this.root.querySelectorAll(".name")) label.textContent = name;
      for (const kind of ["layer", "head"]) {
        this.find(`.${kind}`).addEventListener("input", ({ target }) =>
          choose({ [kind]: target.valueAsNumber }));
      }
      this.select = this.find("select");
      this.area = this.find("textarea");
      this.find(data.live ? ".chooser" : "form").remove();
      if (data.live) this.takeTexts();
      else this.offerTexts();
      document.getElementById("panels").append(this.root);
    }

    takeTexts() {
      const send = (event) => {
        event.preventDefault();
        this.open(this.area.value);
      };
      this.find("form").addEventListener("submit", send);
      this.area.addEventListener("keydown", (event) => {
        // Enter that ends the input of a Chinese or Japanese word sends nothing.
        if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
      });
      this.find(".examples").append(...data.examples.map((text) => {
        const button = element("button", text);
        button.type = "button";
        button.title = text;
        button.addEventListener("click", () => this.open(text));
        return button;
      }));
    }

    offerTexts() {
      this.find(".chooser").hidden = data.texts.length < 2;
      this.select.append(...data.texts.map(({ text }, index) =>
        new Option(`${index + 1}. ${[...text].slice(0, 80).join("") || "(empty)"}`, index)));
      this.select.addEventListener("change", () => this.show(data.texts[this.select.value]));
    }

    show(text) {
      this.text = text;
      this.kept = this.current = this.masked = null;
      const bytes = Uint8Array.from(atob(text.attention), (letter) => letter.charCodeAt(0));
      this.values = new Uint16Array(bytes.buffer);
      this.select.value = data.texts.indexOf(text);
      this.area.value = text.text;
      this.find(".guesses").hidden = !text.words;
      this.showAnswer();
      this.showTokens();
      this.showMasks();
      this.drawMaps();
      this.buttons = {};
      for (const side of ["from", "to"]) this.buttons[side] = this.makeColumn(side);
      this.find("svg").setAttribute("viewBox", `0 0 100 ${text.tokens.length}`);
      this.draw();
      compare();
    }

    showAnswer() {
      const { answer } = this.text;
      this.find(".answer").hidden = !answer;
      if (!answer) return;
      const texts = answer.texts.map((parts) => {
        const text = element("p");
        text.append(...parts.map((part) => {
          if (!part.kind) return part.text;
          const mark = element("mark", `${part.text} `);
          mark.style.background = part.color;
          mark.append(element("small", part.kind));
          return mark;
        }));
        return text;
      });
      this.find(".texts").replaceChildren(...texts, bars(answer.bars));
      this.find(".reply").textContent = answer.note;
    }

    showTokens() {
      const { tokens, segments, sources, truncated, words, next_sentence: next } = this.text;
      const isPair = segments.includes(1);
      this.find(".count").textContent = count(tokens.length, "token");
      const notes = [];
      if (truncated) {
        notes.push(`The text is longer: the model reads ${tokens.length} of its tokens ` +
          "(--max_seq_length).");
      }
      if (isPair) notes.push("The second segment is shaded.");
      const unknown = new Set(
        sources.filter((source, index) => tokens[index] === "[UNK]" && source !== "[UNK]"),
      );
      if (unknown.size) {
        const missing = [...unknown].map(isolated).join(", ");
        notes.push(`[UNK] stands for what is not in the vocabulary: ${missing}.`);
      }
      this.find(".note").textContent = notes.join(" ");
      this.find(".tokens").replaceChildren(
        ...tokens.map((token, index) => {
          const item = element("li");
          const maskable = words?.[index].length && token !== MASK;
          const box = element(maskable ? "button" : "span");
          box.append(element("bdi", token));
          box.classList.toggle("second", segments[index] === 1);
          box.classList.toggle("special", /^\[.+\]$/.test(token));
          box.title = `${index}, segment ${"AB"[segments[index]]}` +
            (sources[index] ? `, from “${sources[index]}”` : "");
          if (maskable) box.addEventListener("click", () => this.mask(index));
          item.append(box);
          return item;
        }),
      );
      this.find(".next-sentence").textContent = next === null ? ""
        : `The second text follows the first with a probability of ${percent(next)}.`;
    }

    mask(index) {
      this.masked = index === this.masked ? null : index;
      this.showMasks();
    }

    showMasks() {
      const { tokens, words } = this.text;
      this.find(".tokens").childNodes.forEach(({ firstChild: box }, index) => {
        if (box.type) box.setAttribute("aria-pressed", index === this.masked);
      });
      this.find(".masks").replaceChildren(
        ...(words ?? []).flatMap((found, index) => {
          if (tokens[index] !== MASK && index !== this.masked) return [];
          const mask = element("div");
          mask.append(element("h3", `${isolated(tokens[index])} (${index})`));
          mask.append(bars(found));
          return mask;
        }),
      );
    }

    drawMaps() {
      const { tokens: { length: size }, layers, heads } = this.text;
      const maps = this.find(".maps");
      maps.style.gridTemplateColumns = `repeat(${heads + 1}, minmax(0, 5rem))`;
      maps.replaceChildren(...Array.from({ length: layers * (heads + 1) }, (_, number) => {
        const map = element("canvas");
        map.width = map.height = size;
        const image = new ImageData(size, size);
        for (let pixel = 0; pixel < size * size; pixel++) {
          const share = this.values[number * size * size + pixel] / 65535;
          image.data.set([...BLUE, 255 * (0.08 + 0.92 * Math.sqrt(share))], 4 * pixel);
        }
        map.getContext("2d").putImageData(image, 0, 0);
        map.addEventListener("click", () =>
          choose({ layer: Math.floor(number / (heads + 1)), head: number % (heads + 1) }));
        return map;
      }));
    }

    makeColumn(side) {
      const column = this.find(`.${side}`);
      const buttons = this.text.tokens.map((token, index) => {
        const button = element("button");
        button.type = "button";
        button.tabIndex = index ? -1 : 0;
        button.append(element("bdi", token), element("span", "", "share"));
        const here = { side, index };
        for (const event of ["pointerenter", "focus"]) {
          button.addEventListener(event, () => this.point(here));
        }
        for (const event of ["pointerleave", "blur"]) {
          button.addEventListener(event, () => this.point(null));
        }
        button.addEventListener("click", () => {
          this.kept = isAt(this.kept, side, index) ? null : here;
          this.draw();
        });
        button.addEventListener("keydown", (event) => this.move(event, here));
        return button;
      });
      column.replaceChildren(...buttons.map((button) => {
        const item = element("li");
        item.append(button);
        return item;
      }));
      return buttons;
    }

    point(place) {
      this.current = place;
      this.draw();
    }

    move(event, { side, index }) {
      const last = this.text.tokens.length - 1;
      const places = {
        ArrowUp: [side, Math.max(index - 1, 0)],
        ArrowDown: [side, Math.min(index + 1, last)],
        Home: [side, 0],
        End: [side, last],
        ArrowLeft: ["from", index],
        ArrowRight: ["to", index],
      };
      if (event.key === "Escape") {
        this.kept = null;
        this.draw();
      }
      if (!(event.key in places)) return;
      event.preventDefault();
      const [column, row] = places[event.key];
      for (const button of this.buttons[column]) button.tabIndex = -1;
      this.buttons[column][row].tabIndex = 0;
      this.buttons[column][row].focus();
    }

    share(i, j) {
      const size = this.text.tokens.length;
      return this.values[(this.map * size + i) * size + j] / 65535;
    }

    // The share that a token of the other column has in the lines of `place`.
    shareOf(place, index) {
      return place.side === "from" ? this.share(place.index, index) : this.share(index, place.index);
    }

    draw() {
      const { tokens, layers, heads } = this.text;
      for (const [kind, last] of [["layer", layers - 1], ["head", heads]]) {
        const slider = this.find(`.${kind}`);
        slider.max = last;
        slider.value = head[kind];
        head[kind] = slider.valueAsNumber; // in range, whatever the address says
        slider.ariaValueText = kind === "head" && head.head === heads ? "mean" : head[kind];
        this.find(`.${kind}-value`).textContent =
          `${slider.ariaValueText} (0-${last - (kind === "head")})`;
      }
      this.map = head.layer * (heads + 1) + head.head;
      this.find(".maps").childNodes.forEach((map, number) => {
        map.classList.toggle("chosen", number === this.map);
      });
      const place = this.current ?? this.kept;
      for (const side of ["from", "to"]) {
        this.buttons[side].forEach((button, index) => {
          const isKept = isAt(this.kept, side, index);
          const share = place && place.side !== side ? this.shareOf(place, index) : null;
          button.classList.toggle("current", isAt(place, side, index));
          button.classList.toggle("kept", isKept);
          button.classList.toggle("faint", share !== null && share < SHOWN);
          button.setAttribute("aria-pressed", isKept);
          button.lastChild.textContent = share === null ? "" : percent(share);
        });
      }
      const paths = [];
      tokens.forEach((_, i) => tokens.forEach((_, j) => {
        if (place && (place.side === "from" ? i : j) !== place.index) return;
        const share = this.share(i, j);
        if (share >= SHOWN) paths.push(line(i, j, share, place ? Math.sqrt(share) : share));
      }));
      this.find("svg").replaceChildren(...paths);
      this.find(".summary").textContent = place ? this.sentence(place) : "";
    }

    sentence(place) {
      const { tokens } = this.text;
      const shares = tokens.map((token, index) => [token, this.shareOf(place, index), index]);
      const best = shares.sort((a, b) => b[1] - a[1]).slice(0, 4)
        .map(([token, share, index]) => `${isolated(token)} (${index}) ${percent(share)}`);
      const verb = place.side === "from" ? "attends most to" : "is attended to most by";
      return `${isolated(tokens[place.index])} (${place.index}) ${verb} ${best.join(", ")}.`;
    }

    async open(text) {
      const known = data.texts.find((each) => each.text === text);
      if (!data.live) return known && this.show(known);
      const button = this.find("form button[type=submit]");
      if (button.disabled) return;
      const status = this.find(".status");
      this.area.value = text;
      if (!text.trim()) {
        status.textContent = "Write a text first.";
        return;
      }
      button.disabled = true;
      status.textContent = "Computing…";
      try {
        this.show(known ?? await ask(text));
        status.textContent = "";
      } catch (error) {
        const lost = error instanceof TypeError; // as fetch reports it
        status.textContent = lost ? "No answer: does the command still run?" : error.message;
      }
      button.disabled = false;
      save();
    }
  }

  async function ask(text) {
    const answer = await fetch("/", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ text }),
    });
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.error);
    data.texts.push(found);
    return found;
  }

  function choose(chosen) {
    Object.assign(head, chosen);
    for (const panel of panels) panel.draw();
  }

  function line(i, j, share, strength) {
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", `M0,${i + 0.5} C45,${i + 0.5} 55,${j + 0.5} 100,${j + 0.5}`);
    path.setAttribute("stroke-width", 0.6 + 4.4 * share);
    path.setAttribute("stroke-opacity", 0.15 + 0.85 * strength);
    return path;
  }

  // The vectors of encoders have a length of 1.
  function compare() {
    const [a, b] = panels.map(({ text }) => text?.vector);
    const cosine = a && b && a.reduce((sum, x, index) => sum + x * b[index], 0);
    document.getElementById("similarity").textContent = a && b
      ? `Cosine similarity of the two texts: ${cosine.toFixed(3)}` : "";
  }

  function showTheme(dark) {
    const button = document.getElementById("theme");
    button.textContent = dark ? "Light theme" : "Dark theme";
    button.onclick = () => {
      root.style.colorScheme = dark ? "light" : "dark";
      showTheme(!dark);
    };
  }

  // Keeps what is shown in the address. The frame of a notebook has none of its own.
  function save() {
    const now = new URLSearchParams(head);
    for (const { text, masked, kept } of panels) {
      now.append("text", text.text);
      now.append("masked", masked ?? "");
      now.append("kept", [kept?.side, kept?.index].join(" ").trim());
    }
    const isNew = location.protocol !== "about:" && location.hash !== `#${now}`;
    if (isNew) history.replaceState(null, "", `#${now}`);
  }

  async function restore() {
    for (const [number, text] of state.getAll("text").entries()) {
      const panel = panels[number];
      await panel?.open(text);
      if (panel?.text.text !== text) continue;
      const [masked, kept] = ["masked", "kept"].map((name) => state.getAll(name)[number] ?? "");
      const [side, index] = kept.split(" ");
      panel.find(".tokens").children[masked]?.firstChild.click();
      panel.buttons[side]?.[index]?.click();
    }
    for (const event of ["click", "change", "keyup"]) document.addEventListener(event, save);
    addEventListener("hashchange", () => location.reload());
  }

  showTheme(matchMedia("(prefers-color-scheme: dark)").matches);
  document.getElementById("model").textContent = data.model;
  const [first, second = first] = data.texts;
  document.getElementById("size").textContent =
    `${count(first.layers, "layer")} of ${count(first.heads, "attention head")}`;
  const shown = data.live || data.texts.length > 1 ? [first, second] : [first];
  panels.push(...shown.map((_, index) => new Panel(index ? "Compare with" : "Text")));
  shown.forEach((text, index) => panels[index].show(text));
  restore();
})();
