// On a phone, names of hosts, rules and options stay in one piece if they fit: a browser would break them at every hyphen.

const LONGEST = 32; // characters that fit a line there

const NAME = /[^\s()[\]{},;"'`]*(?:\w|-)-\w[^\s()[\]{},;"'`]*/;
const narrow = matchMedia("(max-width: 900px)");

function keepNames() {
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  const texts = [];
  while (walker.nextNode()) if (NAME.test(walker.currentNode.data)) texts.push(walker.currentNode);
  for (const text of texts) {
    if (text.parentElement.closest("svg, select, script, .grid")) continue;
    for (let rest = text, found; (found = NAME.exec(rest.data)); ) {
      const name = rest.splitText(found.index);
      rest = name.splitText(found[0].length);
      if (found[0].length > LONGEST) continue;
      const span = make("span", { class: "name" });
      name.replaceWith(span);
      span.append(name);
    }
  }
}

if (narrow.matches) keepNames();
else narrow.addEventListener("change", keepNames, { once: true });
