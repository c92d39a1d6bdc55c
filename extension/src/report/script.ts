/** What runs in the page: it reports the number of what was clicked, and keeps the place that was scrolled to. */
export const SCRIPT = `
const host = acquireVsCodeApi();
const page = document.currentScript.nonce;
addEventListener("click", (event) => {
  const target = event.target instanceof Element ? event.target.closest("[data-action]") : null;
  if (!target) return;
  event.preventDefault();
  host.postMessage({ action: Number(target.dataset.action) });
  if (!target.dataset.done) return;
  const label = target.textContent;
  target.textContent = target.dataset.done;
  delete target.dataset.done;
  setTimeout(() => { target.dataset.done = target.textContent; target.textContent = label; }, 1500);
});
addEventListener("scrollend", () => host.setState({ page, top: scrollY }));
const last = host.getState();
scrollTo(0, last?.page === page ? last.top : 0);
`;
