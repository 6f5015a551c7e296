"use strict";
// Keys, and answers sent in the background: the page is a form that works without this.
(() => {
  const pair = document.getElementById("pair");
  const news = document.getElementById("news");
  const keys = document.getElementById("keys");
  const RETRY_MS = [300, 1000, 2000, 4000, 8000];
  const LOOK_MS = 2000;
  let shownAt = performance.now();
  let busy = false;
  let differ = sessionStorage.getItem("differ") !== "off";

  function prepare() {
    for (const one of pair.querySelectorAll(".scripted")) one.hidden = false;
    const note = pair.querySelector("#note");
    if (note) note.hidden = true;
    const sides = pair.querySelector(".sides");
    if (sides) sides.classList.toggle("marked", differ);
    pair.querySelector("#differ")?.setAttribute("aria-pressed", String(differ));
  }

  function announce() {
    const alert = pair.querySelector(".alert");
    const here = pair.querySelector("#answer") ? "The next pair is here." : "Nothing to label right now.";
    news.textContent = alert ? `${alert.textContent} ${here}` : here;
  }

  function show(html) {
    const held = pair.querySelector("#answer")?.dataset.lease;
    const chosen = [...pair.querySelectorAll("[name=reasons]:checked")].map((one) => one.value);
    pair.innerHTML = html;
    prepare();
    announce();
    // After a remark it is the pair that was here before, and the reader has been at it all the while.
    if (pair.querySelector("#answer")?.dataset.lease !== held) {
      shownAt = performance.now();
      scrollTo({ top: 0 });
    } else {
      for (const one of pair.querySelectorAll("[name=reasons]")) one.checked = chosen.includes(one.value);
    }
    // Where the reader was is gone; the prompt is where reading goes on.
    const title = pair.querySelector("h2");
    if (title) {
      title.tabIndex = -1;
      title.focus({ preventScroll: true });
    }
  }

  // What stood behind the last answer appears in its place; everything else is the next pair.
  function place(form, html) {
    if (form.id !== "look") return show(html);
    form.outerHTML = html;
    pair.querySelector("#reveal summary")?.focus();
  }

  function tell(words) {
    let alert = pair.querySelector(".alert");
    if (!alert) {
      alert = document.createElement("p");
      alert.className = "alert";
      alert.setAttribute("role", "alert");
      pair.prepend(alert);
    }
    alert.textContent = words;
  }

  // The same submission may be sent again: the server stores it once.
  async function post(form, body) {
    for (let attempt = 0; ; attempt += 1) {
      try {
        const reply = await fetch(form.getAttribute("action"), { method: "POST", body, headers: { "X-Fragment": "1" } });
        if (reply.status < 500) return reply;
      } catch {
        // The server cannot be reached: it may be starting again.
      }
      tell("The server does not answer. Your answer is kept here and sent again …");
      await new Promise((done) => { setTimeout(done, RETRY_MS[Math.min(attempt, RETRY_MS.length - 1)]); });
    }
  }

  // A note that was typed and not kept yet goes ahead of whatever takes it off the page.
  function unsavedNote(form) {
    const note = pair.querySelector("#note");
    const text = note?.querySelector("textarea");
    return text && form !== note && text.value !== text.defaultValue ? note : null;
  }

  async function send(form, button) {
    if (busy) return;
    busy = true;
    pair.setAttribute("aria-busy", "true");
    const seconds = form.querySelector("[name=seconds]");
    if (seconds) seconds.value = ((performance.now() - shownAt) / 1000).toFixed(2);
    const body = new URLSearchParams(new FormData(form));
    if (button?.name) body.set(button.name, button.value);
    const note = unsavedNote(form);
    let reply = note && await post(note, new URLSearchParams(new FormData(note)));
    if (!reply || reply.ok) reply = await post(form, body);
    if (reply.status === 401) return location.assign("/login");
    if (reply.ok) place(form, await reply.text());
    else tell("That was refused; load the page again.");
    busy = false;
    pair.removeAttribute("aria-busy");
  }

  function openNote(open) {
    const form = pair.querySelector("#note");
    if (!form) return;
    form.hidden = !open;
    pair.querySelector("#note-open")?.setAttribute("aria-expanded", String(open));
    if (open) form.querySelector("textarea").focus();
    else pair.querySelector("#note-open")?.focus();
  }

  document.addEventListener("submit", (event) => {
    if (!pair.contains(event.target)) return;
    event.preventDefault();
    send(event.target, event.submitter);
  });

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button?.id === "note-open") openNote(pair.querySelector("#note").hidden);
    if (button?.id === "differ") {
      differ = !differ;
      sessionStorage.setItem("differ", differ ? "on" : "off");
      pair.querySelector(".sides").classList.toggle("marked", differ);
      button.setAttribute("aria-pressed", String(differ));
    }
  });

  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("textarea, input:not([type=checkbox]), select");
    if (typing) {
      if (event.key === "Escape") openNote(false);
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) typing.form?.requestSubmit();
      return;
    }
    if (!keys.checked || event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
    const button = pair.querySelector(`:is(button, input)[data-key="${CSS.escape(event.key.toLowerCase())}"]`);
    if (!button || busy) return;
    event.preventDefault();
    button.click();
  });

  // With nothing to do the page asks now and then.
  setInterval(async () => {
    if (busy || document.hidden || !pair.querySelector("[data-empty]")) return;
    try {
      const reply = await fetch("/label/pair");
      if (reply.status === 401) return location.assign("/login");
      const html = await reply.text();
      if (reply.ok && !busy && !html.includes("data-empty")) show(html);
    } catch {
      // Not there; the next look may find it.
    }
  }, LOOK_MS);

  prepare();
})();
