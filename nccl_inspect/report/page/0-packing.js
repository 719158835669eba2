"use strict";
// What report/html.py packed: columns of numbers as steps, and texts as words with columns of numbers.

function unpacked(text) {
  const numbers = [];
  let last = 0;
  for (const run of text ? text.split(" ") : []) {
    const [step, times = "1"] = run.split("*");
    for (let left = Number(times); left > 0; left -= 1) {
      last += Number(step);
      numbers.push(last);
    }
  }
  return numbers;
}

// The text at each place, put together when it is asked for.
function textsOf(packed) {
  const kinds = packed.kinds.map(([words, ...columns]) => ({ words, columns: columns.map(unpacked), size: 0 }));
  const places = unpacked(packed.order).map((kind) => [kinds[kind], kinds[kind].size++]);
  return (at) => {
    const [kind, row] = places[at];
    return kind.words.reduce((whole, word, column) => whole + kind.columns[column - 1][row] + word);
  };
}
