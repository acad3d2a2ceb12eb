// The File System Access API, which TypeScript's library lacks.
interface FilePickerOptions {
  suggestedName?: string
  types?: { description: string, accept: Record<string, `.${string}`[]> }[]
}

interface FileSystemHandle {
  queryPermission(descriptor: { mode: "read" | "readwrite" }): Promise<PermissionState>
  requestPermission(descriptor: { mode: "read" | "readwrite" }): Promise<PermissionState>
}

declare function showSaveFilePicker(options?: FilePickerOptions): Promise<FileSystemFileHandle>
declare function showOpenFilePicker(options?: FilePickerOptions): Promise<FileSystemFileHandle[]>
