import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { test } from 'node:test';

const SCRIPT = `
import { writeFileSync } from 'node:fs';
const { ensureInstalled, installStatement, runs } = await import(process.argv[1]);
const wanted = {
  name: 'a server',
  reason: 'it serves',
  packages: { 'apt-get': ['the-server'] },
  isThere: () => runs('the-server'),
};
const other = { ...wanted, name: 'another', packages: { 'apt-get': ['another'] }, isThere: () => runs('another') };
const present = { ...wanted, name: 'a shell', isThere: () => true };
console.log(installStatement([wanted, present]));
console.log('--');
ensureInstalled(wanted);
console.log(installStatement([wanted, present]));
ensureInstalled(other);
`;

/** Stands in for the system's package manager: logs its arguments, and writes an empty program for the package. */
const APT_GET = `#!/bin/sh
echo "apt-get $*" >> "$FOLDER/log"
if [ "$1" = install ]; then for last; do :; done; printf '#!/bin/sh\\n' > "$FOLDER/$last"; /bin/chmod +x "$FOLDER/$last"; fi
`;

test('installStatement names, with their reasons, the commands that ensureInstalled then runs', async () => {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'pie-packages-'));
  try {
    await writeFile(path.join(folder, 'apt-get'), APT_GET, { mode: 0o755 });
    const sudo = '#!/bin/sh\nshift\nif [ "$1" = true ]; then exit 0; fi\n"$@"\n';
    await writeFile(path.join(folder, 'sudo'), sudo, { mode: 0o755 });
    const module = new URL('./packages.js', import.meta.url).href;
    const run = spawnSync(process.execPath, ['--input-type=module', '-e', SCRIPT, module], {
      encoding: 'utf8',
      env: { PATH: folder, FOLDER: folder },
    });
    assert.equal(run.status, 0, run.stderr);
    const [statement = '', rest] = run.stdout.split('--\n');
    const sudoPrefix = process.getuid?.() === 0 ? '' : 'sudo ';
    const stated = `${sudoPrefix}apt-get update -qq && ${sudoPrefix}apt-get install -y -qq --no-install-recommends the-server`;
    assert.match(statement, /with administrator's rights/);
    assert.ok(statement.includes(`  a server: it serves\n    ${stated}\n`), statement);
    assert.doesNotMatch(statement, /a shell/, 'the statement leaves out a program that is present');
    assert.equal(rest, 'Installing a server with apt-get …\nnull\nInstalling another with apt-get …\n');
    const ran = (await readFile(path.join(folder, 'log'), 'utf8'))
      .split('\n')
      .filter((line) => !/--version|^$/.test(line));
    const others = 'apt-get install -y -qq --no-install-recommends another';
    assert.equal(
      ran.join(' && '),
      `${stated.replaceAll('sudo ', '')} && ${others}`,
      'the stated commands ran, and the lists of packages were fetched once',
    );
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
