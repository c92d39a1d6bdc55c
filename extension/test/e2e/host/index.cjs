// The workbench calls run() inside its extension host.
const { readdirSync } = require("node:fs");
const path = require("node:path");
const loaded = require("mocha");
const Mocha = loaded.default ?? loaded; // mocha 12 is an ES module.

exports.run = () =>
  new Promise((resolve, reject) => {
    const mocha = new Mocha({ ui: "bdd", timeout: 90_000, color: false, bail: true });
    for (const file of readdirSync(__dirname).filter((name) => name.endsWith(".test.cjs")))
      mocha.addFile(path.join(__dirname, file));
    mocha.run((failures) => (failures ? reject(new Error(`${failures} failed`)) : resolve()));
  });
