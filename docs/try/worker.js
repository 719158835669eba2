// Runs the package in Pyodide, apart from the page, which can stop it at any time. Everything comes in with the first
// message: what Pyodide would fetch is taken from there, and nothing is asked of anybody.
"use strict";

const INDEX = "https://parts.invalid/"; // Pyodide wants an address; none of it is ever opened
const PARTS = new Map();
const TYPES = { ".wasm": "application/wasm", ".zip": "application/zip" };
let python, judge;
let names; // of the files that were judged last

self.fetch = async (address) => {
  const name = String(address.url ?? address).split("/").pop();
  if (!PARTS.has(name)) throw new TypeError(`${name}: not a part of this page`);
  const type = TYPES[name.slice(name.lastIndexOf("."))] ?? "application/octet-stream";
  return new Response(PARTS.get(name), { headers: { "Content-Type": type } });
};

async function unpacked(blob) {
  const head = new Uint8Array(await blob.slice(0, 2).arrayBuffer());
  if (head[0] !== 0x1f || head[1] !== 0x8b) return blob.arrayBuffer(); // a server may have unpacked it
  return new Response(blob.stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

async function imported(name) {
  const address = URL.createObjectURL(new Blob([PARTS.get(name)], { type: "text/javascript" }));
  try {
    return await import(address);
  } finally {
    URL.revokeObjectURL(address);
  }
}

async function start({ parts }) {
  await Promise.all(Object.entries(parts).map(async ([name, blob]) => PARTS.set(name, await unpacked(blob))));
  const { loadPyodide } = await imported("pyodide.mjs");
  const { default: createPyodideModule } = await imported("pyodide.asm.mjs");
  const lockFileContents = new TextDecoder().decode(PARTS.get("pyodide-lock.json"));
  python = await loadPyodide({ indexURL: INDEX, lockFileContents, createPyodideModule });
  python.unpackArchive(PARTS.get("packages.zip"), "zip", { extractDir: "/packages" });
  python.runPython("import sys; sys.path.insert(0, '/packages')");
  judge = python.pyimport("judge");
  for (const name of [...PARTS.keys()].filter((one) => one !== "sample.log")) PARTS.delete(name);
  postMessage({ kind: "ready" });
}

// Files take the place of those before; gives the names to judge.
async function placed(files) {
  const { FS } = python;
  python.runPython("import shutil; shutil.rmtree('/logs', ignore_errors=True)");
  FS.mkdirTree("/logs");
  for (const { path, data } of files) {
    postMessage({ kind: "progress", stage: `Taking in ${path} (${(data.size / 2 ** 20).toFixed(1)} MB)`, total: 0 });
    const place = `/logs/${path}`;
    FS.mkdirTree(place.slice(0, place.lastIndexOf("/")));
    FS.writeFile(place, new Uint8Array(await data.arrayBuffer()));
    if (data.lastModified) FS.utime(place, data.lastModified, data.lastModified); // the newest file may be the last run
  }
  return [...new Set(files.map(({ path }) => path.split("/")[0]))].map((name) => (name === "-" ? "./-" : name));
}

async function judged({ files, sample, limit }) {
  const given = sample ? [{ path: "sample.log", data: new Blob([PARTS.get("sample.log")]) }] : files;
  names = python.toPy(await placed(given));
  const answer = JSON.parse(judge.judge_files(names, limit, progress("Reading")));
  postMessage({ kind: "judged", ...answer });
}

async function anonymized() {
  const answer = JSON.parse(judge.anonymize_files(names, progress("Anonymizing")));
  const data = answer.path ? python.FS.readFile(answer.path) : null;
  postMessage({ kind: "anonymized", ...answer, data });
}

// Tells the page how far the work has come, ten times a second; a total of 0 means that nobody knows.
function progress(first) {
  let shown = 0;
  return (done, total, stage = first) => {
    const now = performance.now();
    if (total && done < total && now - shown < 100) return;
    shown = now;
    postMessage({ kind: "progress", stage, done, total });
  };
}

const TASKS = { start, judge: judged, anonymize: anonymized };
let before = Promise.resolve();

onmessage = ({ data }) => {
  before = before.then(() => TASKS[data.task](data)).catch((error) => {
    postMessage({ kind: "failed", task: data.task, error: String(error?.message ?? error) });
  });
};
