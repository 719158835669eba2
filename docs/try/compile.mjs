// node compile.mjs PYODIDE GIVEN.zip MADE.zip: compiles modules with the Python that will run them, which saves each
// visitor more than a second. Run by tools/try_page.py.
import { readFileSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [pyodide, given, made] = process.argv.slice(2);
try {
  const { loadPyodide } = await import(pathToFileURL(`${pyodide}/pyodide.mjs`));
  const python = await loadPyodide();
  python.unpackArchive(new Uint8Array(readFileSync(given)), "zip", { extractDir: "/packages" });
  python.runPython(`
import compileall, py_compile, shutil
mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
assert compileall.compile_dir("/packages", quiet=1, invalidation_mode=mode, stripdir="/packages")
shutil.make_archive("/packed", "zip", "/packages")
`);
  writeFileSync(made, python.FS.readFile("/packed.zip"));
} catch (error) {
  console.error(`compile.mjs: ${error.message}`); // not the stack: it would show a line of a megabyte
  process.exitCode = 1;
}
