import { mkdir, readFile, symlink, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { parseConfig } from '#gpu-host/models/config.ts';
import { expectedTensors } from '#gpu-host/models/load.ts';
import { writeSafetensors } from '#gpu-host/models/safetensors.ts';
import { publishedTokenizer } from '#gpu-host/models/testing/published-tokenizer.ts';
import { gaussian, randomTensor } from '#gpu-host/models/testing/random-model.ts';
import { parseVision } from '#gpu-host/models/vision/config.ts';
import { expectedVisionTensors } from '#gpu-host/models/vision/tensors.ts';
import type { Layout, TokenizerSource } from './layouts.ts';

const LAYERS = 2;

/** Sizes of a small vision tower. Image and patch sizes stay as published, and with them the number of embeds of an image. */
const SMALL_TOWER = { hidden_size: 32, intermediate_size: 64, num_hidden_layers: LAYERS, num_attention_heads: 2 };

interface TokenizerJson {
  added_tokens: { id: number; content: string; special: boolean }[];
  normalizer: unknown;
  pre_tokenizer: unknown;
  post_processor: unknown;
  model: { vocab: Record<string, number>; merges: (string | [string, string])[] };
}

/** Writes all files of a layout's repository but the weights into `directory`, with the published config.json. */
export async function writeMetadata(layout: Layout, directory: string): Promise<void> {
  await mkdir(directory, { recursive: true });
  const published = await publishedTokenizer(layout.tokenizer.package);
  const read = async (name: string) => JSON.parse(await readFile(path.join(published, name), 'utf8'));
  const write = (name: string, value: unknown) =>
    writeFile(path.join(directory, name), typeof value === 'string' ? value : JSON.stringify(value));
  const { package: _, deviates, ...changes } = layout.tokenizer;
  if (Object.keys(changes).length === 0)
    await symlink(path.join(published, 'tokenizer.json'), path.join(directory, 'tokenizer.json'));
  else await write('tokenizer.json', derivedTokenizer(await read('tokenizer.json'), layout.tokenizer));
  const template = templateOf(layout, (await read('tokenizer_config.json')).chat_template);
  const { templateIn } = layout;
  const inSettings = template !== null && templateIn === undefined;
  await write('tokenizer_config.json', { ...layout.settings, ...(inSettings && { chat_template: template }) });
  if (template !== null && templateIn === 'chat_template.json') await write(templateIn, { chat_template: template });
  if (template !== null && templateIn === 'chat_template.jinja') await write(templateIn, template);
  await write('generation_config.json', layout.generation);
  await write('config.json', layout.config);
  if (layout.preprocessor) await write('preprocessor_config.json', layout.preprocessor);
}

/** Writes a whole repository of a layout with its small sizes, two layers and random weights. */
export async function writeSmallModel(layout: Layout, directory: string): Promise<void> {
  await writeMetadata(layout, directory);
  const config = smallConfig(layout);
  await writeFile(path.join(directory, 'config.json'), JSON.stringify(config));
  const weights = path.join(directory, 'model.safetensors');
  // Only a supported family has known tensors. The refusal comes before the weights are read.
  if ('refusal' in layout.expected) {
    await writeSafetensors(weights, [{ name: 'model.norm.weight', shape: [1], data: () => Float32Array.of(1) }]);
    return;
  }
  const text = parseConfig(config, layout.generation);
  const vision = parseVision(config, layout.preprocessor, text);
  const expected = [...expectedTensors(text), ...(vision ? expectedVisionTensors(vision) : [])];
  const random = gaussian(7);
  await writeSafetensors(
    weights,
    expected.map(([name, shape]) => ({
      name: vision ? inLlava(name) : name,
      shape,
      data: () => randomTensor(name, shape, random),
    })),
  );
}

function smallConfig({ config, small }: Layout): Record<string, unknown> {
  const sizes = { ...small, num_hidden_layers: LAYERS };
  if (!('text_config' in config)) return { ...config, ...sizes };
  return {
    ...config,
    text_config: { ...(config.text_config as object), ...sizes },
    vision_config: { ...(config.vision_config as object), ...SMALL_TOWER },
  };
}

/** The name of a tensor in the repositories of LLaVA 1.5. */
function inLlava(name: string): string {
  if (name.startsWith('vision_tower.')) return `vision_tower.vision_model.${name.slice('vision_tower.'.length)}`;
  return name.startsWith('multi_modal_projector.') ? name : `language_model.${name}`;
}

function templateOf({ name, template }: Layout, published: string): string | null {
  if (template === null) return null;
  if ('text' in template) return template.text;
  return template.replaced.reduce((text, [from, to]) => {
    if (!text.includes(from)) throw new Error(`the template for ${name} has no "${from}"`);
    return text.replaceAll(from, to);
  }, published);
}

function derivedTokenizer(json: TokenizerJson, source: TokenizerSource): TokenizerJson {
  const { added = [], inserted = [], leading, begins } = source;
  if (inserted.length > 0) insertAt(json, 3, inserted);
  if (leading) {
    // The last merges make the last tokens.
    const removed = new Set(
      Object.entries(json.model.vocab).flatMap(([token, id]) =>
        id >= leading.size - leading.names.length ? [token] : [],
      ),
    );
    json.added_tokens = [];
    json.model.vocab = Object.fromEntries(Object.entries(json.model.vocab).filter(([token]) => !removed.has(token)));
    const made = (merge: string | [string, string]) =>
      typeof merge === 'string' ? merge.replace(' ', '') : merge.join('');
    json.model.merges = json.model.merges.filter((merge) => !removed.has(made(merge)));
    insertAt(json, 0, leading.names);
  }
  for (const token of added) {
    json.added_tokens = [...json.added_tokens.filter(({ id }) => id !== token.id), { ...PLAIN, ...token }];
  }
  json.added_tokens.sort((a, b) => a.id - b.id);
  if (source.spacesFirst) {
    json.normalizer = null;
    json.pre_tokenizer = { type: 'Metaspace', replacement: '▁', prepend_scheme: 'first', split: false };
  }
  if (begins !== undefined) {
    const id = json.added_tokens.find(({ content }) => content === begins)?.id;
    const single = [{ SpecialToken: { id: begins, type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }];
    const special_tokens = { [begins]: { id: begins, ids: [id], tokens: [begins] } };
    json.post_processor = { type: 'TemplateProcessing', single, pair: [], special_tokens };
  }
  return json;
}

const PLAIN = { single_word: false, lstrip: false, rstrip: false, normalized: false };

/** Puts control tokens at `first` and moves all ids from there on up. */
function insertAt(json: TokenizerJson, first: number, names: readonly string[]): void {
  const moved = (id: number) => (id < first ? id : id + names.length);
  const control = names.map((content, i) => ({ ...PLAIN, id: first + i, content, special: true }));
  json.model.vocab = Object.fromEntries([
    ...Object.entries(json.model.vocab).map(([token, id]) => [token, moved(id)] as const),
    ...control.map(({ content, id }) => [content, id] as const),
  ]);
  json.added_tokens = [...json.added_tokens.map((token) => ({ ...token, id: moved(token.id) })), ...control];
}
