import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, it } from 'node:test';
import { SourceWatch } from './watch.ts';

const directory = await mkdtemp(path.join(os.tmpdir(), 'pie-watch-'));
after(() => rm(directory, { recursive: true, force: true }));

it('a watch notices a change in the last folder, although an earlier one has more files than MAX_FOLDERS', async () => {
  for (const folder of ['many', 'last']) await mkdir(path.join(directory, folder));
  const many = Array.from({ length: 300 }, (_, i) => path.join(directory, 'many', `${i}.ts`));
  const last = path.join(directory, 'last', 'a.ts');
  await writeFile(last, '');
  using watch = new SourceWatch();
  // No file was written after a time in the future, so none counts as changed at once.
  watch.watch([...many, last], Date.now() + 60_000, false);
  const changed = watch.change(AbortSignal.timeout(60_000));
  await writeFile(last, 'changed');
  await changed;
});
