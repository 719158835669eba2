// Keeps the page for times without network. A new build has another name, and the parts of the old one go.
"use strict";

const BUILD = { name: "nccl-inspect-try", shell: [] }; // replaced when the page is built

addEventListener("install", (event) => {
  skipWaiting();
  event.waitUntil(caches.open(BUILD.name).then((cache) => cache.addAll(BUILD.shell)));
});

addEventListener("activate", (event) => {
  const old = (name) => name.startsWith("nccl-inspect-try") && name !== BUILD.name;
  event.waitUntil(
    caches.keys().then((names) => Promise.all(names.filter(old).map((name) => caches.delete(name)))).then(() => clients.claim()),
  );
});

addEventListener("fetch", (event) => {
  if (event.request.method !== "GET") return;
  event.respondWith(caches.match(event.request, { ignoreSearch: true }).then((kept) => kept ?? fetch(event.request)));
});
