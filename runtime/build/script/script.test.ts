import assert from 'node:assert/strict';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';
import { readScriptFile, ScriptFileError, writeScriptFile } from '#scheduler/functions/script-file.ts';
import { packScript, unpackScript } from './payload.ts';
import { encodePlaces, Places, PlacesError } from './places.ts';

test('a script keeps its texts, also beyond ASCII', () => {
  const [text, map] = ['(async function(){"é 🙂"})', '{"version":3}'];
  const file = packScript({ text, map, imports: ['forward'] });
  const { header, ...texts } = unpackScript(file);
  assert.deepEqual(texts, { text, map });
  assert.deepEqual(header, { engine: null, imports: ['forward'], scriptBytes: Buffer.byteLength(text), mapBytes: 13 });
});

test('a payload that is damaged, or longer or shorter than it says, is refused', () => {
  const { header } = readScriptFile(packScript({ text: 'abc', map: '', imports: [] }));
  const payloads = [
    Buffer.from('abc'),
    gzipSync('abcd'),
    gzipSync('ab'),
    gzipSync(Buffer.alloc(1 << 24)),
    gzipSync(Buffer.of(0xff, 1, 2)),
  ];
  for (const payload of payloads)
    assert.throws(() => unpackScript(writeScriptFile({ header, payload })), ScriptFileError);
});

test('a table of places finds what the source map says', async () => {
  const contents = 'import { f } from "b";\nexport function run() {\n  return f("é🙂") + nope;\n}\n';
  const plugin = {
    name: 'b',
    setup: (setup: import('esbuild').PluginBuild) => {
      setup.onResolve({ filter: /^b$/ }, () => ({ path: 'b', namespace: 'b' }));
      setup.onLoad({ filter: /.*/, namespace: 'b' }, () => ({ contents: 'export const f = (x) => {\n  throw x;\n};' }));
    },
  };
  const { outputFiles } = await build({
    stdin: { contents, sourcefile: 'a.js' },
    charset: 'utf8',
    ...{ bundle: true, write: false, format: 'esm', sourcemap: 'external', outfile: 'x.js', plugins: [plugin] },
  });
  const output = (ending: string) => outputFiles?.find(({ path }) => path.endsWith(ending))?.text ?? '';
  const lines = output('.js').split('\n');
  const places = new Places(encodePlaces(output('.map'), output('.js')));
  const line = lines.findIndex((each) => each.includes('nope')) + 1;
  const place = places.find(line, Buffer.byteLength((lines[line - 1] ?? '').split('nope')[0] ?? '') + 1);
  assert.deepEqual(place, { file: 'a.js', line: 3, column: 21 });
  const stack = `at run (<input>:${line}:${Buffer.byteLength((lines[line - 1] ?? '').split('nope')[0] ?? '') + 1})\n at x (<input>:9999:1)`;
  assert.equal(places.inText(stack), 'at run (a.js:3:21)\n at x (<input>:9999:1)');
  const thrown = lines.findIndex((each) => each.includes('throw x')) + 1;
  assert.deepEqual([places.find(thrown, 3)?.file, places.find(thrown, 3)?.line], ['b:b', 2]);
  assert.equal(places.find(lines.length + 5, 1), null);
});

test('forged tables of places are refused, and none is read outside of its bounds', () => {
  const bytes = encodePlaces(JSON.stringify({ sources: ['a'], mappings: 'AAAA,CAAC;AACA' }), 'ab\nc');
  for (let at = 0; at < bytes.length; at++)
    for (const value of [0, 1, 0x7f, 0xff]) {
      const forged = Buffer.from(bytes);
      forged[at] = value;
      try {
        const places = new Places(forged);
        for (let line = 0; line < 4; line++) for (let column = 0; column < 4; column++) places.find(line, column);
      } catch (error) {
        assert.ok(error instanceof PlacesError, String(error));
      }
    }
  for (const map of ['', '{}', 'null', '{"sources":[1],"mappings":""}', '{"sources":["a"],"mappings":"ACAA"}'])
    assert.throws(() => encodePlaces(map, ''), PlacesError, map);
});
