"""The studio's pages in navigation order, each with a module, script and style sheet."""

from app.studio.pages.author import AuthorPage
from app.studio.pages.batch import BatchPage
from app.studio.pages.benchmark import BenchmarkPage
from app.studio.pages.cache import CachePage
from app.studio.pages.gallery import GalleryPage
from app.studio.pages.models import ModelsPage
from app.studio.pages.page import Page
from app.studio.pages.runs import RunsPage
from app.studio.pages.serve import ServePage

__all__ = ["PAGES", "Page"]

PAGES: tuple[type[Page], ...] = (
    AuthorPage,
    RunsPage,
    BatchPage,
    BenchmarkPage,
    CachePage,
    ServePage,
    ModelsPage,
    GalleryPage,
)
