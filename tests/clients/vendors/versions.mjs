// Prints the versions of the packages that are named.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const found = {};
for (const name of process.argv.slice(2)) {
  const path = fileURLToPath(new URL(`./node_modules/${name}/package.json`, import.meta.url));
  found[name] = JSON.parse(readFileSync(path, "utf8")).version;
}
console.log(JSON.stringify(found));
