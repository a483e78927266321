"use strict";
(() => {
  const root = document.documentElement;
  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  try { const kept = localStorage.getItem("ddtreec-theme"); if (kept) root.dataset.theme = kept; } catch { /* no storage */ }
  document.getElementById("theme").addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("ddtreec-theme", root.dataset.theme); } catch { /* no storage */ }
  });
})();
