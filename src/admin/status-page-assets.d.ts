/** The files of `page/`, built by `statusPageAssets` in `rolldown.config.ts`. */
declare module 'status-page-assets' {
  export const markup: string
  export const script: string
  export const style: string
}
