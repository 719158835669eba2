// Tokens of a log by a TextMate grammar, as Visual Studio Code makes them: node tokens.js MODULES GRAMMAR LOG
const fs = require("fs");
const path = require("path");
const [modules, grammarFile, log] = process.argv.slice(2);
const textmate = require(path.join(modules, "vscode-textmate"));
const oniguruma = require(path.join(modules, "vscode-oniguruma"));

(async () => {
  await oniguruma.loadWASM(fs.readFileSync(path.join(modules, "vscode-oniguruma/release/onig.wasm")).buffer);
  const onigLib = Promise.resolve({
    createOnigScanner: (patterns) => new oniguruma.OnigScanner(patterns),
    createOnigString: (text) => new oniguruma.OnigString(text),
  });
  const loadGrammar = async () => textmate.parseRawGrammar(fs.readFileSync(grammarFile, "utf8"), "grammar.json");
  const grammar = await new textmate.Registry({ onigLib, loadGrammar }).loadGrammar("text.log.nccl");
  let stack = textmate.INITIAL;
  for (const line of fs.readFileSync(log, "utf8").split("\n")) {
    const result = grammar.tokenizeLine(line, stack);
    stack = result.ruleStack;
    const tokens = result.tokens.map((token) => [line.slice(token.startIndex, token.endIndex), token.scopes]);
    console.log(JSON.stringify(tokens));
  }
})();
