import type { BrowserContextOptions, Page } from 'playwright-core';

/** Opens a signed-in window for a test. The test fails when the browser complains, unless it `mayComplain`. */
export type OpenWindow = (
  options: BrowserContextOptions & { mayComplain?: boolean },
  use: (page: Page) => Promise<void>,
) => Promise<void>;
