"""The pages of the studio, in the order of the head: one entry, module, script and style sheet for each."""

from app.studio.pages.author import AuthorPage
from app.studio.pages.cache import CachePage
from app.studio.pages.gallery import GalleryPage
from app.studio.pages.page import Page

__all__ = ["PAGES", "Page"]

PAGES: tuple[type[Page], ...] = (AuthorPage, CachePage, GalleryPage)
