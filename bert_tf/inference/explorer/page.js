"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const panels = [];
  // The same head in both texts, so that they can be compared.
  const head = { layer: 0, head: 0 };
  const MASK = "[MASK]";
  const SHOWN = 0.02; // fainter lines would only be a haze
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

  function probabilities(text) {
    const bytes = Uint8Array.from(atob(text.attention), (letter) => letter.charCodeAt(0));
    const values = new Uint16Array(bytes.buffer);
    const size = text.tokens.length;
    return (i, j) =>
      values[((head.layer * text.heads + head.head) * size + i) * size + j] / 65535;
  }

  class Panel {
    constructor(text) {
      const copy = document.getElementById("panel").content.cloneNode(true);
      this.root = copy.querySelector("article");
      this.find = (selector) => this.root.querySelector(selector);
      this.select = this.find("select");
      this.select.addEventListener("change", () => this.show(data.texts[this.select.value]));
      for (const kind of ["layer", "head"]) {
        this.find(`.${kind}`).addEventListener("input", (event) => {
          head[kind] = Number(event.target.value);
          for (const panel of panels) panel.draw();
        });
      }
      if (data.live) {
        this.find("form").addEventListener("submit", (event) => this.send(event));
        this.find("textarea").addEventListener("keydown", (event) => {
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.send(event);
        });
      } else {
        this.find("form").remove();
      }
      document.getElementById("panels").append(this.root);
      this.list();
      this.show(text);
    }

    list() {
      const chosen = data.texts.indexOf(this.text);
      this.select.replaceChildren(
        ...data.texts.map((text, index) => {
          const letters = [...text.text];
          const shown = letters.slice(0, 80).join("") + (letters.length > 80 ? "…" : "");
          return new Option(`${index + 1}. ${shown || "(empty)"}`, index, false, index === chosen);
        }),
      );
      this.find(".chooser").hidden = data.texts.length < 2;
    }

    show(text) {
      this.text = text;
      this.kept = this.current = null;
      for (const section of this.root.querySelectorAll("section")) section.hidden = !text;
      if (!text) return;
      this.share = probabilities(text);
      this.select.value = data.texts.indexOf(text);
      this.root.setAttribute("aria-label", `Text ${data.texts.indexOf(text) + 1}`);
      this.showTokens();
      this.showMasks();
      this.buttons = {};
      for (const side of ["from", "to"]) this.buttons[side] = this.makeColumn(side);
      this.find("svg").setAttribute("viewBox", `0 0 100 ${text.tokens.length}`);
      this.draw();
    }

    showTokens() {
      const { tokens, segments, sources, truncated } = this.text;
      this.find("section h2").textContent = count(tokens.length, "token");
      const notes = [];
      if (truncated) {
        notes.push(`The text is longer: the model reads ${tokens.length} of its tokens ` +
          "(--max_seq_length).");
      }
      if (segments.includes(1)) notes.push("Dashed boxes are the second segment.");
      this.find(".note").textContent = notes.join(" ");
      this.find(".tokens").replaceChildren(
        ...tokens.map((token, index) => {
          const item = element("li");
          item.append(element("bdi", token));
          item.classList.toggle("second", segments[index] === 1);
          item.classList.toggle("special", /^\[.+\]$/.test(token));
          item.title = `${index}, segment ${"AB"[segments[index]]}` +
            (sources[index] ? `, from “${sources[index]}”` : "");
          return item;
        }),
      );
    }

    showMasks() {
      const { masks } = this.text;
      let none = "";
      if (masks === null) none = "This model has no masked-LM head, and so predicts no words.";
      else if (!masks.length) none = `The text has no ${MASK}.`;
      this.find(".no-masks").textContent = none;
      this.find(".masks").replaceChildren(
        ...(masks ?? []).map(({ position, words }, index) => {
          const mask = element("div");
          if (masks.length > 1) mask.append(element("h3", `${MASK} ${index + 1}, token ${position}`));
          const list = element("ol", "", "words");
          list.append(...words.map(({ token, probability }) => {
            const item = element("li");
            const bar = element("span", "", "bar");
            bar.setAttribute("aria-hidden", "true");
            bar.append(element("span"));
            bar.firstChild.style.width = percent(probability);
            item.append(element("bdi", token), bar, element("span", percent(probability), "number"));
            return item;
          }));
          mask.append(list);
          return mask;
        }),
      );
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

    // The share that a token of the other column has in the lines of `place`.
    shareOf(place, index) {
      return place.side === "from" ? this.share(place.index, index) : this.share(index, place.index);
    }

    draw() {
      if (!this.text) return;
      const { tokens, layers, heads } = this.text;
      for (const [kind, number] of [["layer", layers], ["head", heads]]) {
        const slider = this.find(`.${kind}`);
        slider.max = number - 1;
        slider.value = head[kind];
        this.find(`.${kind}-value`).textContent = `${head[kind]} of 0 to ${number - 1}`;
      }
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

    async send(event) {
      event.preventDefault();
      const button = this.find("form button");
      if (button.disabled) return;
      const status = this.find(".status");
      button.disabled = true;
      status.textContent = "Computing…";
      try {
        const answer = await fetch("/", {
          method: "POST",
          headers: { "Content-Type": "application/json" },
          body: JSON.stringify({ text: this.find("textarea").value }),
        });
        const found = await answer.json();
        if (!answer.ok) throw new Error(found.error);
        data.texts.push(found);
        for (const panel of panels) panel.list();
        this.show(found);
        if (panels.length === 1) addPanel();
        status.textContent = "";
      } catch (error) {
        const lost = error instanceof TypeError; // as fetch reports it
        status.textContent = lost ? "No answer: does the command still run?" : error.message;
      }
      button.disabled = false;
    }
  }

  function line(i, j, share, strength) {
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", `M0,${i + 0.5} C45,${i + 0.5} 55,${j + 0.5} 100,${j + 0.5}`);
    path.setAttribute("stroke-width", 0.6 + 4.4 * share);
    path.setAttribute("stroke-opacity", 0.15 + 0.85 * strength);
    return path;
  }

  function addPanel() {
    panels.push(new Panel(data.texts[panels.length] ?? null));
  }

  function showTheme(dark) {
    const button = document.getElementById("theme");
    button.textContent = dark ? "Light theme" : "Dark theme";
    button.onclick = () => {
      root.style.colorScheme = dark ? "light" : "dark";
      showTheme(!dark);
    };
  }

  showTheme(matchMedia("(prefers-color-scheme: dark)").matches);
  document.getElementById("model").textContent = data.model;
  const [first] = data.texts;
  document.getElementById("size").textContent = first
    ? `${count(first.layers, "layer")} of ${count(first.heads, "attention head")}`
    : `up to ${data.maxSeqLength} tokens per text`;
  addPanel();
  if (data.texts.length > 1) addPanel();
})();
