"use strict";
// Brings in the newest picture of the run, and what is asked and waited for, while the page is looked at.
(() => {
  const live = document.getElementById("live");
  const aside = document.getElementById("aside");
  const waits = document.getElementById("waits");
  const more = document.getElementById("more");
  const news = document.getElementById("news");
  const LOOK_MS = 1500;

  async function text(address) {
    const reply = await fetch(address);
    if (reply.status === 401 || reply.redirected) location.assign("/login");
    return reply.status === 200 ? [await reply.text(), reply.headers] : null;
  }

  async function bringLive() {
    // Not under a pointer that is reading a chart.
    if (live.querySelector("svg:hover")) return;
    const found = await text(`/live?have=${live.dataset.picture}`);
    if (!found) return;
    const before = live.querySelector(".headline")?.textContent;
    // What somebody has unfolded stays so.
    const unfolded = [...live.querySelectorAll("details[open]")].map((one) => one.id);
    live.innerHTML = found[0];
    for (const id of unfolded) live.querySelector(`#${id}`)?.setAttribute("open", "");
    live.dataset.picture = found[1].get("X-Picture");
    document.dispatchEvent(new Event("holdfast:charts"));
    const after = live.querySelector(".headline")?.textContent;
    if (after && after !== before) news.textContent = after;
    if (more.open) bringMore();
  }

  async function bringAside() {
    // Not while somebody fills a form in.
    if (aside.contains(document.activeElement) || [...aside.querySelectorAll("input:not([type=hidden])")].some((i) => i.value)) return;
    const found = await text("/live/aside");
    if (found && found[0] !== aside.dataset.last) {
      aside.dataset.last = found[0];
      aside.innerHTML = found[0];
    }
  }

  async function bringWaits() {
    if (waits.contains(document.activeElement)) return;
    const found = await text("/live/waits");
    if (found) waits.innerHTML = found[0];
  }

  async function bringMore() {
    const found = await text("/live/more");
    if (!found) return;
    more.querySelector(".body").innerHTML = found[0];
    document.dispatchEvent(new Event("holdfast:charts"));
  }

  more.addEventListener("toggle", () => { if (more.open) bringMore(); });

  async function look() {
    try {
      if (!document.hidden) await Promise.all([bringLive(), bringAside(), bringWaits()]);
    } catch {
      // The server is away; the next look may find it.
    }
    setTimeout(look, LOOK_MS);
  }
  setTimeout(look, live.dataset.picture === "0" ? 0 : LOOK_MS);
})();
