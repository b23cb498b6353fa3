// Keeps an open page live: pieces that changed come over one stream and are put in by their ids, in
// a way that leaves focus, selection and scroll positions alone. Pages are whole without it.
"use strict";

(() => {
  /** How long the line that the connection is back stays, in milliseconds. */
  const BACK_SHOWN_MS = 4000;
  /** How long to wait before a stream that the browser gave up is opened again. */
  const REOPEN_MS = 1500;
  /** How long after a letter the editor's text is checked, in milliseconds. */
  const CHECK_AFTER_MS = 400;

  /**
   * Makes the children of one element like those of another, and keeps each node that can stay.
   * @param {Element} now
   * @param {Element} wanted
   */
  function morphChildren(now, wanted) {
    /** @type {Map<string, Element>} */
    const byId = new Map();
    for (const child of now.children) {
      if (child.id) byId.set(child.id, child);
    }
    /** @type {ChildNode | null} */
    let at = now.firstChild;
    for (const next of Array.from(wanted.childNodes)) {
      const id = next instanceof Element ? next.id : "";
      const kept = id ? byId.get(id) : undefined;
      if (kept && kept !== at) {
        now.insertBefore(kept, at);
        at = kept;
      }
      if (at && isSame(at, next)) {
        morph(at, next);
        at = at.nextSibling;
      } else {
        now.insertBefore(document.importNode(next, true), at);
      }
    }
    while (at) {
      const gone = at;
      at = at.nextSibling;
      gone.remove();
    }
  }

  /**
   * @param {Node} one
   * @param {Node} other
   */
  function isSame(one, other) {
    if (one.nodeName !== other.nodeName) return false;
    if (!(one instanceof Element) || !(other instanceof Element)) return true;
    // A button must not turn into its neighbour.
    const is = (/** @type {string} */ name) => one.getAttribute(name) === other.getAttribute(name);
    return one.id === other.id && is("action") && is("formaction");
  }

  /**
   * @param {Node} now
   * @param {Node} wanted
   */
  function morph(now, wanted) {
    if (!(now instanceof Element) || !(wanted instanceof Element)) {
      if (now.nodeValue !== wanted.nodeValue) now.nodeValue = wanted.nodeValue;
      return;
    }
    if (now.isEqualNode(wanted)) return;
    for (const { name, value } of Array.from(wanted.attributes)) {
      if (name === "hidden" && now.hasAttribute("data-script")) continue;
      if (now.getAttribute(name) !== value) now.setAttribute(name, value);
    }
    for (const { name } of Array.from(now.attributes)) {
      // Whether details are open is the reader's.
      if (!wanted.hasAttribute(name) && name !== "open") now.removeAttribute(name);
    }
    // The rows of a list come by themselves.
    if (!now.hasAttribute("data-rows")) morphChildren(now, wanted);
  }

  /**
   * Puts in the rows of a list that changed, and all in their order where that is another.
   * @param {string} id
   * @param {Record<string, string>} rows
   * @param {string[] | undefined} order
   */
  function putInRows(id, rows, order) {
    const list = document.getElementById(id);
    if (!list) return;
    const follows = list.hasAttribute("data-follow") && list.scrollTop <= 4;
    const focused = document.activeElement;
    /** @type {Map<string, Element>} */
    const all = new Map();
    for (const row of Array.from(list.children)) {
      if (order && !order.includes(row.id)) row.remove();
      else all.set(row.id, row);
    }
    for (const [rowId, html] of Object.entries(rows)) {
      const template = document.createElement("template");
      template.innerHTML = html;
      const wanted = template.content.firstElementChild;
      const row = all.get(rowId);
      if (wanted && row) morph(row, wanted);
      else if (wanted) all.set(rowId, document.importNode(wanted, true));
    }
    let at = list.firstElementChild;
    for (const rowId of order ?? []) {
      const row = all.get(rowId);
      if (row && row === at) at = at.nextElementSibling;
      else if (row) list.insertBefore(row, at);
    }
    // A row that is moved loses it.
    if (focused instanceof HTMLElement && list.contains(focused)) focused.focus({ preventScroll: true });
    if (follows) list.scrollTop = 0;
  }

  /**
   * @param {string} id
   * @param {string} html
   */
  function putIn(id, html) {
    const piece = document.getElementById(id);
    if (!piece) return;
    const log = piece.querySelector("[data-follow]");
    const follows = log !== null && log.scrollTop <= 4;
    const wanted = document.createElement("div");
    wanted.innerHTML = html;
    morphChildren(piece, wanted);
    if (log && follows) log.scrollTop = 0;
  }

  const connection = document.getElementById("connection");
  let isLost = false;
  let isPaused = false;
  /** @type {number | undefined} */
  let hiding;

  /** @param {boolean} lost */
  function showConnection(lost) {
    if (!connection || lost === isLost) return;
    isLost = lost;
    window.clearTimeout(hiding);
    connection.hidden = false;
    connection.classList.toggle("lost", lost);
    connection.textContent = lost
      ? "Connection to the gateway lost. What you see may be old; trying again…"
      : "Connected again.";
    if (!lost) {
      hiding = window.setTimeout(() => {
        connection.hidden = true;
      }, BACK_SHOWN_MS);
    }
  }

  /** @type {EventSource | null} */
  let stream = null;
  /** @type {number | undefined} */
  let reopening;

  /** @param {Event} event */
  function dataOf(event) {
    return JSON.parse(/** @type {MessageEvent<string>} */ (event).data);
  }

  function open() {
    const page = document.body.dataset.live;
    if (!page || stream || isPaused || document.hidden) return;
    window.clearTimeout(reopening);
    const opened = new EventSource(`/ui/live?page=${encodeURIComponent(page)}`);
    stream = opened;
    opened.addEventListener("hello", (event) => {
      if (dataOf(event).release !== document.body.dataset.release) {
        window.location.reload();
      }
      showConnection(false);
    });
    opened.addEventListener("piece", (event) => {
      const { id, html } = dataOf(event);
      putIn(id, html);
    });
    opened.addEventListener("rows", (event) => {
      const { id, rows, order } = dataOf(event);
      putInRows(id, rows, order);
    });
    opened.addEventListener("signed-out", () => window.location.reload());
    opened.addEventListener("gone", () => {
      close();
      toast("What this page shows is gone. Reload it to see more.");
    });
    // As many pages are live as may be: this one asks again later.
    opened.addEventListener("full", () => {
      close();
      reopening = window.setTimeout(open, 20 * REOPEN_MS);
    });
    opened.addEventListener("error", () => {
      showConnection(true);
      if (opened.readyState === EventSource.CLOSED) {
        close();
        reopening = window.setTimeout(open, REOPEN_MS);
      }
    });
  }

  function close() {
    stream?.close();
    stream = null;
  }

  /**
   * Shows an error until it is dismissed.
   * @param {string} text
   */
  function toast(text) {
    const message = document.createElement("p");
    message.className = "toast lost";
    message.setAttribute("role", "alert");
    const words = document.createElement("span");
    words.textContent = text;
    const close = document.createElement("button");
    close.className = "quiet";
    close.setAttribute("aria-label", "Dismiss");
    close.textContent = "✕";
    close.addEventListener("click", () => message.remove());
    message.append(words, close);
    document.getElementById("toasts")?.append(message);
  }

  // A page that nobody looks at costs nothing.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      close();
      window.clearTimeout(reopening);
    } else {
      open();
    }
  });
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", open);

  /**
   * Submits the form of a button, and shows the question that comes back.
   * @param {HTMLButtonElement} button
   */
  async function ask(button) {
    const form = /** @type {HTMLFormElement} */ (button.form);
    const question = (await sent(form, button.formAction))?.getElementById("question");
    const text = question?.querySelector("p")?.textContent;
    if (!question || !text) {
      button.removeAttribute("data-ask");
      form.requestSubmit(button);
      return;
    }
    const dialog = document.createElement("dialog");
    dialog.setAttribute("aria-label", text);
    dialog.append(question);
    question.querySelector("a")?.addEventListener("click", (event) => {
      event.preventDefault();
      dialog.close();
    });
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }

  /**
   * The page that answers a form; nothing if the gateway does not answer.
   * @param {HTMLFormElement} form
   * @param {string} to
   */
  async function sent(form, to) {
    const fields = new URLSearchParams();
    for (const [name, value] of new FormData(form)) fields.append(name, String(value));
    const answer = await fetch(to, { method: "POST", body: fields }).catch(() => null);
    return answer && new DOMParser().parseFromString(await answer.text(), "text/html");
  }

  document.addEventListener("submit", (event) => {
    const button = event.submitter;
    if (button instanceof HTMLButtonElement && button.dataset.ask !== undefined) {
      event.preventDefault();
      ask(button);
    }
  });

  const { at } = document.body.dataset;
  if (at) window.history.replaceState(null, "", at);

  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element ? event.target.closest("[data-copy], [data-save]") : null;
    if (!(button instanceof HTMLElement)) return;
    const { copy, save } = button.dataset;
    const text = document.getElementById(copy ?? save ?? "")?.innerText ?? "";
    if (save) {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
      link.download = "mcpvisor.log";
      link.click();
      return;
    }
    const label = button.textContent;
    const show = (/** @type {string} */ words) => {
      button.textContent = words;
      window.setTimeout(() => {
        button.textContent = label;
      }, 1500);
    };
    navigator.clipboard.writeText(text).then(() => show("Copied"), () => show("Not copied"));
  });

  // A list stands still while it is paused.
  document.querySelector("[data-pause]")?.addEventListener("click", (event) => {
    const button = /** @type {HTMLElement} */ (event.currentTarget);
    isPaused = !isPaused;
    button.textContent = isPaused ? "Resume" : "Pause";
    (isPaused ? close : open)();
  });
  document.querySelector("[data-wrap]")?.addEventListener("click", () => {
    document.querySelector(".log")?.classList.toggle("cut");
  });

  // Arguments of the last use are there again, unless the page shows a call with its own.
  for (const form of /** @type {NodeListOf<HTMLFormElement>} */ (document.querySelectorAll("form[data-remember]"))) {
    const key = `mcpvisor ${form.action.replace(/&call=.*/, "")}`;
    form.addEventListener("submit", () => {
      const fields = [...new FormData(form)].filter(([name]) => name.startsWith("argument"));
      localStorage.setItem(key, JSON.stringify(fields));
    });
    const isCalled = new URLSearchParams(location.search).has("call");
    const last = isCalled ? [] : JSON.parse(localStorage.getItem(key) ?? "[]");
    for (const [name, value] of last) {
      const field = form.elements.namedItem(name);
      if (field instanceof HTMLTextAreaElement || field instanceof HTMLSelectElement || field instanceof HTMLInputElement) field.value = value;
    }
  }

  // The editor is checked with each change, and begins at the table in the query.
  const editor = /** @type {HTMLTextAreaElement | null} */ (document.getElementById("content"));
  if (editor?.form) {
    const { form } = editor;
    /** @type {number | undefined} */
    let checking;
    editor.addEventListener("input", () => {
      window.clearTimeout(checking);
      checking = window.setTimeout(async () => {
        const { value } = editor;
        const page = await sent(form, form.action);
        const found = page?.getElementById("content-error") ?? page?.getElementById("planned");
        if (found && editor.value === value) document.getElementById("check")?.replaceChildren(found);
      }, CHECK_AFTER_MS);
    });
    const table = new URLSearchParams(location.search).get("at");
    const start = table ? editor.value.indexOf(`[${table}]`) : -1;
    if (start >= 0) {
      editor.focus();
      editor.setSelectionRange(start, start);
      editor.scrollTop = (editor.value.slice(0, start).split("\n").length - 2) * parseFloat(getComputedStyle(editor).lineHeight);
    }
  }

  // A filter is used as soon as it is chosen.
  document.addEventListener("change", (event) => {
    const field = event.target;
    if (field instanceof HTMLSelectElement && field.form?.dataset.auto !== undefined) {
      field.form.requestSubmit();
    }
  });

  /** How long after a letter the search begins, in milliseconds. */
  const SEARCH_AFTER_MS = 120;

  /** Opens the search for everything, with the results of the search page. */
  function openFinder() {
    if (document.querySelector("dialog[open]")) return;
    const dialog = document.createElement("dialog");
    dialog.className = "finder";
    dialog.setAttribute("aria-label", "Search");
    dialog.innerHTML =
      '<label><svg class="icon" aria-hidden="true"><use href="#icon-search"></use></svg>' +
      '<input autocomplete="off" spellcheck="false" maxlength="256" aria-label="Search"' +
      ' placeholder="Servers, tools, sessions, calls, settings, actions"></label>' +
      '<div class="found" aria-live="polite"></div>' +
      '<p class="keys"><kbd>↑</kbd> <kbd>↓</kbd> to choose, <kbd>Enter</kbd> to open, <kbd>Esc</kbd> to close</p>';
    const input = /** @type {HTMLInputElement} */ (dialog.querySelector("input"));
    const found = /** @type {HTMLElement} */ (dialog.querySelector(".found"));
    /** @type {AbortController | undefined} */
    let asked;
    /** @type {number | undefined} */
    let waiting;
    async function look() {
      asked?.abort();
      asked = new AbortController();
      try {
        const text = encodeURIComponent(input.value);
        const answer = await fetch(`/ui/search?text=${text}`, { signal: asked.signal });
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        found.replaceChildren(...(page.getElementById("found")?.children ?? []));
      } catch (error) {
        if (!(error instanceof DOMException)) found.textContent = "The gateway does not answer.";
      }
    }
    input.addEventListener("input", () => {
      window.clearTimeout(waiting);
      waiting = window.setTimeout(look, SEARCH_AFTER_MS);
    });
    dialog.addEventListener("keydown", (event) => {
      /** @type {HTMLElement[]} */
      const all = Array.from(found.querySelectorAll("a, button"));
      const at = all.indexOf(/** @type {HTMLElement} */ (document.activeElement));
      if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        event.preventDefault();
        const next = at + (event.key === "ArrowDown" ? 1 : -1);
        (next < 0 ? input : all[Math.min(next, all.length - 1)])?.focus();
      } else if (event.key === "Enter" && at < 0) {
        event.preventDefault();
        all[0]?.click();
      }
    });
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog) dialog.close();
    });
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }

  document.addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey) return;
    event.preventDefault();
    openFinder();
  });
  const find = document.querySelector("nav .find");
  find?.addEventListener("click", (event) => {
    event.preventDefault();
    openFinder();
  });
  const key = find?.querySelector("kbd");
  if (key && navigator.platform.startsWith("Mac")) key.textContent = "⌘K";

  /** How often plots are read again, in milliseconds: as often as the gateway takes a sample. */
  const PLOT_EVERY_MS = 10_000;
  const PLOT_HEIGHT = 170;

  /** @typedef {{ name: string, style: string, values: (number | null)[] }} Line */
  /** @typedef {{ times: number[], plots: { title: string, unit: string, lines: Line[] }[] }} Plots */

  /** @param {string} name */
  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  }

  /**
   * @param {Line[]} lines
   * @param {string} unit
   * @param {HTMLElement} canvas
   */
  function drawing(lines, unit, canvas) {
    /** @param {number | null} value */
    const shown = (value) => (value == null ? "–" : value.toLocaleString(undefined, { maximumFractionDigits: 1 }));
    /** @param {number} at */
    const time = (at) => {
      const options = /** @type {const} */ ({ hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
      return new Date(at * 1000).toLocaleTimeString(undefined, options);
    };
    const axis = {
      stroke: colour("soft"),
      font: "11px system-ui, sans-serif",
      grid: { stroke: colour("line"), width: 1 },
      ticks: { show: false },
    };
    const series = lines.map(({ name, style }, index) => ({
      label: name,
      stroke: colour(style),
      width: 1.5,
      fill: index === 0 && lines.length !== 2 ? `${colour(style)}1f` : undefined,
      points: { size: 5 },
      // Without a pointer, the newest value.
      value: (/** @type {any} */ plot, /** @type {number | null} */ value, /** @type {number} */ line, /** @type {number | null} */ at) =>
        shown(at == null ? (plot.data?.[line]?.findLast((/** @type {number | null} */ it) => it != null) ?? null) : value),
    }));
    return {
      width: canvas.clientWidth,
      height: PLOT_HEIGHT,
      cursor: { sync: { key: "plots" }, drag: { x: false, y: false } },
      scales: { y: { range: (/** @type {unknown} */ _, /** @type {number} */ __, /** @type {number} */ most) => [0, most > 0 ? most * 1.15 : 1] } },
      axes: [
        { ...axis, space: 70, size: 26, values: (/** @type {unknown} */ _, /** @type {number[]} */ times) => times.map(time) },
        { ...axis, size: 46, space: 32, values: (/** @type {unknown} */ _, /** @type {number[]} */ values) => values.map(shown) },
      ],
      series: [{ value: (/** @type {unknown} */ _, /** @type {number | null} */ at) => (at == null ? "latest" : time(at)) }, ...series],
    };
  }

  /** @param {HTMLElement} section */
  function showPlots(section) {
    const canvases = /** @type {HTMLElement[]} */ (Array.from(section.querySelectorAll(".canvas")));
    /** @type {any[]} */
    let drawn = [];
    /** @type {Plots | undefined} */
    let last;
    /** @param {boolean} again whether the colours or the size are others */
    function draw(again) {
      const data = last;
      if (!data) return;
      if (again) {
        for (const plot of drawn) plot.destroy();
        drawn = [];
      }
      data.plots.forEach(({ unit, lines }, index) => {
        const canvas = canvases[index];
        if (!canvas) return;
        canvas.toggleAttribute("data-none", lines.every((it) => it.values.every((value) => value === null)));
        const values = [data.times, ...lines.map((it) => it.values)];
        if (drawn[index]) drawn[index].setData(values);
        // @ts-expect-error the library is a script of its own
        else drawn[index] = new uPlot(drawing(lines, unit, canvas), values, canvas);
      });
    }
    async function read() {
      if (document.hidden) return;
      const answer = await fetch(section.dataset.source ?? "").catch(() => null);
      // A lost connection and an ended login are shown already.
      if (!answer?.ok || answer.redirected) return;
      last = await answer.json();
      draw(false);
    }
    read();
    window.setInterval(read, PLOT_EVERY_MS);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(true));
    let width = section.clientWidth;
    new ResizeObserver(() => {
      if (section.clientWidth === width) return;
      width = section.clientWidth;
      draw(true);
    }).observe(section);
  }

  const plots = document.querySelector(".plots");
  if (plots instanceof HTMLElement) {
    const library = document.createElement("script");
    library.src = document.body.dataset.plots ?? "";
    library.addEventListener("load", () => showPlots(plots));
    document.head.append(library);
  }

  // Buttons that need JavaScript are hidden without it.
  for (const hidden of document.querySelectorAll("[data-script]")) {
    hidden.removeAttribute("hidden");
  }

  open();
})();
